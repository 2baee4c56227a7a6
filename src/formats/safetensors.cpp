#include "formats/safetensors.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "formats/file_reader.h"
#include "formats/json_reader.h"

namespace heddle {
namespace {

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;     // as the safetensors library
constexpr std::uint64_t kLfsPointer = 0x206e6f6973726576;  // "version ", read as a length
constexpr int kHeaderDepth = 3;                            // the root, a tensor, its lists
constexpr const char* kTypeNames =
    "F64, F32, F16, BF16, F8_E4M3, F8_E5M2, F8_E8M0, F8_E4M3FNUZ, F8_E5M2FNUZ, F6_E2M3, F6_E3M2, F4, C64, I64, I32, "
    "I16, I8, U64, U32, U16, U8 or BOOL";

/// Product of the extents times the bits of an element, or false if it does not fit in 63 bits.
bool bit_count(const std::vector<std::int64_t>& shape, DType dtype, std::uint64_t& bits) {
  std::int64_t product = static_cast<std::int64_t>(dtype_bits(dtype));
  // A zero anywhere makes the product zero, however large the others are.
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) product = 0;
  for (const std::int64_t extent : shape) {
    if (product != 0 && __builtin_mul_overflow(product, extent, &product)) return false;
  }
  bits = static_cast<std::uint64_t>(product);
  return true;
}

StoredTensor parse_tensor(const std::string& file, const std::string& name, const Json& entry) {
  const std::string where = fmt::format("{}: tensor {}", file, text_excerpt(name));
  if (!entry.is_object()) fail("{}: is {}; expected an object", where, json_excerpt(entry));
  const JsonReader reader(entry, where);
  reader.allow_only(std::array<std::string_view, 3>{"dtype", "shape", "data_offsets"});

  StoredTensor tensor;
  tensor.name = name;
  tensor.file = file;
  const std::string dtype = reader.text("dtype");
  try {
    tensor.dtype = dtype_from_safetensors(dtype);
  } catch (const Error&) {
    reader.refuse("dtype", kTypeNames);
  }

  const auto whole = [](const Json& value) {
    return value.is_number_unsigned() && value.get<std::uint64_t>() <= std::uint64_t{INT64_MAX};
  };
  const Json* shape = reader.find("shape");
  if (shape == nullptr || !shape->is_array() || !std::all_of(shape->begin(), shape->end(), whole)) {
    reader.refuse("shape", "a list of whole numbers, 0 or above");
  }
  tensor.shape = shape->get<std::vector<std::int64_t>>();

  const Json* offsets = reader.find("data_offsets");
  if (offsets == nullptr || !offsets->is_array() || offsets->size() != 2 ||
      !std::all_of(offsets->begin(), offsets->end(), whole)) {
    reader.refuse("data_offsets", "two whole numbers, 0 or above");
  }
  tensor.begin = (*offsets)[0].get<std::uint64_t>();
  tensor.end = (*offsets)[1].get<std::uint64_t>();
  if (tensor.begin > tensor.end) reader.refuse("data_offsets", "the begin before the end");

  std::uint64_t bits = 0;
  if (!bit_count(tensor.shape, tensor.dtype, bits)) reader.refuse("shape", "fewer than 2^63 bits in all");
  if (bits % 8 != 0) reader.refuse("shape", fmt::format("whole bytes of {}", safetensors_name(tensor.dtype)));
  if (const std::uint64_t bytes = bits / 8; bytes != tensor.end - tensor.begin) {
    fail("{}: has {} bytes in data_offsets; shape {} of {} takes {}", where, tensor.end - tensor.begin,
         json_excerpt(*shape), safetensors_name(tensor.dtype), bytes);
  }
  return tensor;
}

/// Sorts the tensors by their bytes; these must fill the data section, each byte once.
void check_ranges(std::vector<StoredTensor>& tensors, std::uint64_t data_bytes, const std::string& file) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::uint64_t at = 0;
  for (const StoredTensor& tensor : tensors) {
    const std::string name = text_excerpt(tensor.name);
    if (tensor.end > data_bytes) {
      fail("{}: tensor {}: its bytes end at {}; the file holds {} behind its header", file, name, tensor.end,
           data_bytes);
    }
    if (tensor.begin < at) {
      fail("{}: tensor {}: its bytes begin at {} and overlap those before it, which end at {}", file, name,
           tensor.begin, at);
    }
    if (tensor.begin > at) {
      fail("{}: tensor {}: a gap of {} bytes lies before it, from {} to {}", file, name, tensor.begin - at, at,
           tensor.begin);
    }
    at = tensor.end;
  }
  if (at != data_bytes) fail("{}: {} bytes behind the last tensor belong to none", file, data_bytes - at);
}

}  // namespace

struct SafetensorsFile::Impl {
  void parse_header();

  std::string path;
  std::uint64_t size = 0;
  ReadAt read;
  std::uint64_t data_begin = 0;
  std::vector<StoredTensor> tensors;
  std::unordered_map<std::string_view, std::size_t> index_of;  // name -> index in tensors
  std::map<std::string, std::string> metadata;
};

void SafetensorsFile::Impl::parse_header() {
  if (size < kLengthBytes) fail("{}: has {} bytes; expected a header length of 8 bytes and more", path, size);
  std::array<std::byte, kLengthBytes> raw{};
  read(0, raw);
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < raw.size(); ++i) length |= std::to_integer<std::uint64_t>(raw[i]) << (8 * i);
  if (length > size - kLengthBytes) {
    // A clone without git-lfs leaves a few lines of text in the place of each large file.
    if (length == kLfsPointer)
      fail("{}: is a pointer of Git LFS to the file, not the file; git lfs pull fetches it", path);
    fail("{}: is cut, or no safetensors file: its header length is {}; the file has {} bytes behind it", path, length,
         size - kLengthBytes);
  }
  if (length > kMaxHeaderBytes) {
    fail("{}: its header length is {}; expected at most {}", path, length, kMaxHeaderBytes);
  }
  std::string text(length, '\0');
  read(kLengthBytes, std::as_writable_bytes(std::span(text)));
  if (!text.starts_with('{')) fail("{}: its header is not a JSON object", path);
  const Json header = parse_json(text, path + ": header", kHeaderDepth);

  for (const auto& [name, entry] : header.get_ref<const Json::object_t&>()) {
    if (name != "__metadata__") {
      tensors.push_back(parse_tensor(path, name, entry));
      continue;
    }
    const auto is_text = [](const Json& value) { return value.is_string(); };
    if (!entry.is_object() || !std::all_of(entry.begin(), entry.end(), is_text)) {
      fail("{}: __metadata__ is {}; expected an object of texts", path, json_excerpt(entry));
    }
    metadata = entry.get<std::map<std::string, std::string>>();
  }
  data_begin = kLengthBytes + length;
  check_ranges(tensors, size - data_begin, path);
  index_of.reserve(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) index_of.emplace(tensors[i].name, i);
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : impl_(std::make_unique<Impl>()) {
  auto file = std::make_shared<FileReader>(path);
  impl_->path = file->path();
  impl_->size = file->size();
  impl_->read = [file](std::uint64_t offset, std::span<std::byte> target) { file->read(offset, target); };
  impl_->parse_header();
}

SafetensorsFile::SafetensorsFile(std::string path, std::uint64_t size, ReadAt read)
    : impl_(std::make_unique<Impl>(Impl{std::move(path), size, std::move(read), 0, {}, {}, {}})) {
  impl_->parse_header();
}

SafetensorsFile::~SafetensorsFile() = default;
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;

std::span<const StoredTensor> SafetensorsFile::tensors() const { return impl_->tensors; }

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = impl_->index_of.find(name);
  return found == impl_->index_of.end() ? nullptr : &impl_->tensors[found->second];
}

void SafetensorsFile::read(const StoredTensor& tensor, std::uint64_t offset, std::span<std::byte> target) const {
  HEDDLE_CHECK(tensor.begin <= tensor.end && tensor.end <= impl_->size - impl_->data_begin);
  HEDDLE_CHECK(offset <= tensor.end - tensor.begin && target.size() <= tensor.end - tensor.begin - offset);
  impl_->read(impl_->data_begin + tensor.begin + offset, target);
}

const std::map<std::string, std::string>& SafetensorsFile::metadata() const { return impl_->metadata; }

}  // namespace heddle
