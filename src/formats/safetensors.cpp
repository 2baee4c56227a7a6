#include "formats/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "formats/json_reader.h"

namespace heddle {
namespace {

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // as the safetensors library
constexpr int kHeaderDepth = 3;                         // the root, a tensor, its lists

/// Product of the extents times the element size, or false if it does not fit in 63 bits.
bool byte_count(const std::vector<std::int64_t>& shape, DType dtype, std::uint64_t& bytes) {
  std::int64_t product = static_cast<std::int64_t>(dtype_bytes(dtype));
  // A zero anywhere makes the product zero, however large the others are.
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) product = 0;
  for (const std::int64_t extent : shape) {
    if (product != 0 && __builtin_mul_overflow(product, extent, &product)) return false;
  }
  bytes = static_cast<std::uint64_t>(product);
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
    reader.refuse("dtype", "F64, F32, F16, BF16, F8_E4M3, F8_E5M2, I64, I32, I16, I8, U64, U32, U16, U8 or BOOL");
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

  std::uint64_t bytes = 0;
  if (!byte_count(tensor.shape, tensor.dtype, bytes)) reader.refuse("shape", "fewer than 2^63 bytes in all");
  if (bytes != tensor.end - tensor.begin) {
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

class Descriptor {
 public:
  explicit Descriptor(const std::string& path) : value_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (value_ < 0) fail("{}: cannot be opened: {}", path, std::strerror(errno));
  }
  ~Descriptor() { ::close(value_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }

 private:
  int value_;
};

}  // namespace

struct SafetensorsFile::Impl {
  explicit Impl(const std::string& file_path) : path(file_path), descriptor(file_path) {}
  ~Impl() {
    if (mapping != nullptr) ::munmap(mapping, size);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void map();
  void parse_header();
  void check_size() const;
  void read_at(std::uint64_t offset, std::span<std::byte> target) const;

  std::string path;
  Descriptor descriptor;
  void* mapping = nullptr;
  std::uint64_t size = 0, data_begin = 0;
  std::vector<StoredTensor> tensors;
  std::unordered_map<std::string_view, std::size_t> index_of;  // name -> index in tensors
  std::map<std::string, std::string> metadata;
};

void SafetensorsFile::Impl::map() {
  struct stat status {};
  if (::fstat(descriptor.get(), &status) != 0) fail("{}: cannot be read: {}", path, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) fail("{}: is no regular file", path);
  size = static_cast<std::uint64_t>(status.st_size);
  if (size < kLengthBytes) fail("{}: has {} bytes; expected a header length of 8 bytes and more", path, size);
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor.get(), 0);
  if (address == MAP_FAILED) fail("{}: its {} bytes cannot be mapped: {}", path, size, std::strerror(errno));
  mapping = address;
}

void SafetensorsFile::Impl::parse_header() {
  std::array<std::byte, kLengthBytes> raw{};
  read_at(0, raw);
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < raw.size(); ++i) length |= std::to_integer<std::uint64_t>(raw[i]) << (8 * i);
  if (length > size - kLengthBytes) {
    fail("{}: its header length is {}; the file has {} bytes behind it", path, length, size - kLengthBytes);
  }
  if (length > kMaxHeaderBytes) {
    fail("{}: its header length is {}; expected at most {}", path, length, kMaxHeaderBytes);
  }
  std::string text(length, '\0');
  read_at(kLengthBytes, std::as_writable_bytes(std::span(text)));
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

void SafetensorsFile::Impl::check_size() const {
  struct stat status {};
  if (::fstat(descriptor.get(), &status) != 0) fail("{}: cannot be read: {}", path, std::strerror(errno));
  if (static_cast<std::uint64_t>(status.st_size) < size) {
    fail("{}: has shrunk from {} to {} bytes since it was opened", path, size, status.st_size);
  }
}

void SafetensorsFile::Impl::read_at(std::uint64_t offset, std::span<std::byte> target) const {
  while (!target.empty()) {
    const ssize_t count = ::pread(descriptor.get(), target.data(), target.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("{}: cannot be read at byte {}: {}", path, offset, std::strerror(errno));
    if (count == 0) fail("{}: has shrunk below {} bytes since it was opened", path, offset + target.size());
    offset += static_cast<std::uint64_t>(count);
    target = target.subspan(static_cast<std::size_t>(count));
  }
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : impl_(std::make_unique<Impl>(path.string())) {
  impl_->map();
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

std::span<const std::byte> SafetensorsFile::bytes(const StoredTensor& tensor) const {
  impl_->check_size();
  HEDDLE_CHECK(tensor.begin <= tensor.end && tensor.end <= impl_->size - impl_->data_begin);
  const auto* data = static_cast<const std::byte*>(impl_->mapping) + impl_->data_begin;
  return {data + tensor.begin, data + tensor.end};
}

void SafetensorsFile::read(const StoredTensor& tensor, std::uint64_t offset, std::span<std::byte> target) const {
  HEDDLE_CHECK(tensor.begin <= tensor.end && tensor.end <= impl_->size - impl_->data_begin);
  HEDDLE_CHECK(offset <= tensor.end - tensor.begin && target.size() <= tensor.end - tensor.begin - offset);
  impl_->read_at(impl_->data_begin + tensor.begin + offset, target);
}

const std::map<std::string, std::string>& SafetensorsFile::metadata() const { return impl_->metadata; }

}  // namespace heddle
