#include "formats/gguf_head.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "formats/json.h"

namespace heddle {
namespace {

constexpr std::uint64_t kMaxHeadBytes = std::uint64_t{256} << 20;  // a vocabulary of 250,000 with merges takes 15 MiB
constexpr std::uint64_t kMaxNameBytes = 65535;                     // of keys, by the specification
constexpr std::int64_t kMaxElements = std::int64_t{1} << 56;       // whose bits can be counted, whatever the type
constexpr std::uint64_t kMaxAlignment = std::uint64_t{1} << 20;
constexpr std::uint64_t kMinEntryBytes = 8 + 4 + 1;       // a key's length, a kind, a value
constexpr std::uint64_t kMinTensorBytes = 8 + 4 + 4 + 8;  // a name's length, the number of dimensions, type, offset

static_assert(std::endian::native == std::endian::little, "values are read as they lie in the file");

/// The head's bytes one after another, through a window; nothing is taken that the file does not hold.
class HeadReader {
 public:
  explicit HeadReader(const FileReader& file) : file_(file), end_(std::min(file.size(), kMaxHeadBytes)) {}

  const std::string& path() const { return file_.path(); }
  std::uint64_t at() const { return at_; }
  std::uint64_t left() const { return end_ - at_; }

  template <typename Value>
  Value value(std::string_view what) {
    Value value;
    copy(std::as_writable_bytes(std::span(&value, 1)), what);
    return value;
  }

  std::string text(std::string_view what, std::uint64_t max_bytes = kMaxHeadBytes) {
    const auto length = value<std::uint64_t>(what);
    if (length > left()) refuse(what, fmt::format("a text of {} bytes", length));
    if (length > max_bytes) {
      fail("{}: {} has {} bytes; expected at most {}", path(), text_excerpt(what), length, max_bytes);
    }
    std::string text(length, '\0');
    copy(std::as_writable_bytes(std::span(text)), what);
    return text;
  }

  /// Throws unless `count` things of at least `each` bytes can follow.
  void expect(std::uint64_t count, std::uint64_t each, std::string_view what) {
    if (count > left() / each) refuse(what, fmt::format("{} of at least {} bytes each", count, each));
  }

 private:
  [[noreturn]] void refuse(std::string_view what, const std::string& wanted) const {
    const bool is_long = end_ < file_.size();
    fail("{}: {} at byte {}: {}; {} holds {} more", path(), text_excerpt(what, 240), at_, wanted,
         is_long ? "a head of at most 256 MiB" : "the file", left());
  }

  void copy(std::span<std::byte> target, std::string_view what) {
    if (target.size() > left()) refuse(what, fmt::format("{} bytes", target.size()));
    while (!target.empty()) {
      if (at_ < window_begin_ || at_ >= window_begin_ + window_.size()) fill();
      const auto from = static_cast<std::size_t>(at_ - window_begin_);
      const std::size_t size = std::min(target.size(), window_.size() - from);
      std::memcpy(target.data(), window_.data() + from, size);
      target = target.subspan(size);
      at_ += size;
    }
  }

  void fill() {
    constexpr std::uint64_t kWindow = std::uint64_t{1} << 18;
    window_.resize(static_cast<std::size_t>(std::min(kWindow, left())));
    window_begin_ = at_;
    file_.read(at_, window_);
  }

  const FileReader& file_;
  std::uint64_t end_, at_ = 0;
  std::vector<std::byte> window_;
  std::uint64_t window_begin_ = 0;
};

/// Names are shown, and written into JSON.
void check_name(const HeadReader& in, std::string_view name, std::string_view what) {
  if (name.empty()) fail("{}: {} before byte {} has no name", in.path(), what, in.at());
  try {
    (void)Json(name).dump();  // refuses what is not UTF-8
  } catch (const Json::exception&) {
    fail("{}: {} {} is not UTF-8", in.path(), what, text_excerpt(name));
  }
}

bool read_boolean(HeadReader& in, std::string_view key) {
  const auto byte = in.value<std::uint8_t>(key);
  if (byte > 1) fail("{}: {} is a truth value of {}; expected 0 or 1", in.path(), text_excerpt(key), byte);
  return byte == 1;
}

template <typename Stored, typename Element>
std::vector<Element> read_numbers(HeadReader& in, std::uint64_t count, std::string_view key) {
  in.expect(count, sizeof(Stored), key);
  std::vector<Element> values(count);
  for (Element& value : values) {
    const auto stored = in.value<Stored>(key);
    if constexpr (std::is_same_v<Stored, std::uint64_t>) {
      if (stored > std::uint64_t{INT64_MAX}) {
        fail("{}: {} holds {}; expected at most {}", in.path(), text_excerpt(key), stored, INT64_MAX);
      }
    }
    value = static_cast<Element>(stored);  // NOLINT(bugprone-signed-char-misuse): i8 is a number here
  }
  return values;
}

GgufValue read_array(HeadReader& in, std::string_view key) {
  const auto kind = in.value<std::uint32_t>(key);
  const auto count = in.value<std::uint64_t>(key);
  switch (static_cast<GgufKind>(kind)) {
    case GgufKind::u8: return read_numbers<std::uint8_t, std::int64_t>(in, count, key);
    case GgufKind::i8: return read_numbers<std::int8_t, std::int64_t>(in, count, key);
    case GgufKind::u16: return read_numbers<std::uint16_t, std::int64_t>(in, count, key);
    case GgufKind::i16: return read_numbers<std::int16_t, std::int64_t>(in, count, key);
    case GgufKind::u32: return read_numbers<std::uint32_t, std::int64_t>(in, count, key);
    case GgufKind::i32: return read_numbers<std::int32_t, std::int64_t>(in, count, key);
    case GgufKind::u64: return read_numbers<std::uint64_t, std::int64_t>(in, count, key);
    case GgufKind::i64: return read_numbers<std::int64_t, std::int64_t>(in, count, key);
    case GgufKind::f32: return read_numbers<float, double>(in, count, key);
    case GgufKind::f64: return read_numbers<double, double>(in, count, key);
    case GgufKind::boolean: {
      in.expect(count, 1, key);
      std::vector<bool> values(count);
      for (std::size_t i = 0; i < count; ++i) values[i] = read_boolean(in, key);
      return values;
    }
    case GgufKind::string: {
      in.expect(count, sizeof(std::uint64_t), key);
      std::vector<std::string> values(count);
      for (std::string& value : values) value = in.text(key);
      return values;
    }
    case GgufKind::array: break;
  }
  if (static_cast<GgufKind>(kind) == GgufKind::array) {
    fail("{}: {} is an array of arrays; expected numbers, texts or truth values", in.path(), text_excerpt(key));
  }
  fail("{}: {} is an array of kind {}; expected 0 to 12", in.path(), text_excerpt(key), kind);
}

GgufValue read_value(HeadReader& in, std::string_view key) {
  const auto kind = in.value<std::uint32_t>(key);
  switch (static_cast<GgufKind>(kind)) {
    case GgufKind::u8: return std::uint64_t{in.value<std::uint8_t>(key)};
    case GgufKind::i8: return std::int64_t{in.value<std::int8_t>(key)};
    case GgufKind::u16: return std::uint64_t{in.value<std::uint16_t>(key)};
    case GgufKind::i16: return std::int64_t{in.value<std::int16_t>(key)};
    case GgufKind::u32: return std::uint64_t{in.value<std::uint32_t>(key)};
    case GgufKind::i32: return std::int64_t{in.value<std::int32_t>(key)};
    case GgufKind::u64: return in.value<std::uint64_t>(key);
    case GgufKind::i64: return in.value<std::int64_t>(key);
    case GgufKind::f32: return double{in.value<float>(key)};
    case GgufKind::f64: return in.value<double>(key);
    case GgufKind::boolean: return read_boolean(in, key);
    case GgufKind::string: return in.text(key);
    case GgufKind::array: return read_array(in, key);
  }
  fail("{}: {} is of kind {}; expected 0 to 12", in.path(), text_excerpt(key), kind);
}

std::uint64_t read_alignment(const GgufMetadata& metadata) {
  constexpr const char* kKey = "general.alignment";
  const auto alignment = static_cast<std::uint64_t>(
      metadata.integer_or(kKey, std::int64_t{kGgufDefaultAlignment}, 1, std::int64_t{kMaxAlignment}));
  if (!std::has_single_bit(alignment)) metadata.refuse(kKey, "a power of two");
  return alignment;
}

/// Bytes of a tensor of that type and shape, whose product may be too large to count.
std::uint64_t bytes_of(const StoredTensor& tensor, const std::string& where) {
  const std::int64_t block = block_elements(tensor.dtype);
  const std::int64_t row = tensor.shape.empty() ? 1 : tensor.shape.back();
  if (row % block != 0) {
    fail("{}: has rows of {} elements; {} comes in blocks of {}", where, row, safetensors_name(tensor.dtype), block);
  }
  // A zero anywhere makes the product zero, however large the others are.
  std::int64_t elements = std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end() ? 0 : 1;
  bool fits = true;
  for (const std::int64_t extent : tensor.shape) {
    if (elements != 0) fits = fits && !__builtin_mul_overflow(elements, extent, &elements);
  }
  if (!fits || elements > kMaxElements) {
    fail("{}: has shape [{}]; expected at most 2^56 elements", where, fmt::join(tensor.shape, ", "));
  }
  return static_cast<std::uint64_t>(storage_bytes(tensor.dtype, elements));
}

StoredTensor read_tensor(HeadReader& in, std::uint64_t alignment) {
  StoredTensor tensor;
  tensor.file = in.path();
  tensor.name = in.text("a tensor's name", kMaxNameBytes);
  check_name(in, tensor.name, "tensor");
  const std::string where = fmt::format("{}: tensor {}", in.path(), text_excerpt(tensor.name));
  const auto dimensions = in.value<std::uint32_t>(tensor.name);
  if (dimensions > kGgufMaxDimensions) {
    fail("{}: has {} dimensions; expected at most {}", where, dimensions, kGgufMaxDimensions);
  }
  for (std::uint32_t i = 0; i < dimensions; ++i) {
    const auto extent = in.value<std::uint64_t>(tensor.name);
    if (extent > std::uint64_t{INT64_MAX}) fail("{}: has an extent of {}; expected below 2^63", where, extent);
    tensor.shape.push_back(static_cast<std::int64_t>(extent));
  }
  std::reverse(tensor.shape.begin(), tensor.shape.end());  // the file begins with the innermost
  const auto type = in.value<std::uint32_t>(tensor.name);
  const auto dtype = dtype_from_ggml(type);
  if (!dtype) fail("{}: has type {}, which is none of ggml's", where, type);
  tensor.dtype = *dtype;
  tensor.begin = in.value<std::uint64_t>(tensor.name);
  if (tensor.begin % alignment != 0) {
    fail("{}: begins at {} behind the head; expected a multiple of {}", where, tensor.begin, alignment);
  }
  if (__builtin_add_overflow(tensor.begin, bytes_of(tensor, where), &tensor.end)) {
    fail("{}: begins at {} behind the head, beyond any file", where, tensor.begin);
  }
  return tensor;
}

void check_ranges(std::vector<StoredTensor>& tensors, std::uint64_t data_bytes) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::uint64_t at = 0;
  for (const StoredTensor& tensor : tensors) {
    const std::string where = fmt::format("{}: tensor {}", tensor.file, text_excerpt(tensor.name));
    if (tensor.end > data_bytes) {
      fail("{}: its bytes end at {}; the file holds {} behind its head", where, tensor.end, data_bytes);
    }
    if (tensor.begin < at) {
      fail("{}: its bytes begin at {} and overlap those before it, which end at {}", where, tensor.begin, at);
    }
    at = tensor.end;
  }
}

std::uint32_t read_version(HeadReader& in) {
  constexpr std::string_view kMagic = "GGUF";
  std::array<char, kMagic.size()> magic{};
  for (char& letter : magic) letter = in.value<char>("the magic number");
  if (const std::string_view found(magic.data(), magic.size()); found != kMagic) {
    fail("{}: begins with {}; expected {}", in.path(), text_excerpt(found), kMagic);
  }
  const auto version = in.value<std::uint32_t>("the version");
  if (version != 0 && (version & 0xffffu) == 0) fail("{}: has big-endian numbers; expected little-endian", in.path());
  if (version != 2 && version != kGgufVersion) {
    fail("{}: has version {} of GGUF; expected 2 or {}", in.path(), version, kGgufVersion);
  }
  return version;
}

}  // namespace

GgufHead read_gguf_head(const FileReader& file) {
  HeadReader in(file);
  GgufHead head(file.path());
  head.version = read_version(in);
  const auto tensors = in.value<std::uint64_t>("the number of tensors");
  const auto entries = in.value<std::uint64_t>("the number of keys");
  in.expect(tensors, kMinTensorBytes, "tensors");
  in.expect(entries, kMinEntryBytes, "keys");
  for (std::uint64_t i = 0; i < entries; ++i) {
    std::string key = in.text("a key", kMaxNameBytes);
    check_name(in, key, "key");
    GgufValue value = read_value(in, key);
    head.metadata.add(std::move(key), std::move(value));
  }
  head.alignment = read_alignment(head.metadata);

  in.expect(tensors, kMinTensorBytes, "tensors");
  std::unordered_set<std::string> names;
  for (std::uint64_t i = 0; i < tensors; ++i) {
    head.tensors.push_back(read_tensor(in, head.alignment));
    const std::string& name = head.tensors.back().name;
    if (!names.insert(name).second) fail("{}: tensor {} is given twice", in.path(), text_excerpt(name));
  }
  // The file may end with its head, unpadded, if no tensor has bytes.
  head.data_begin = std::min(file.size(), (in.at() + head.alignment - 1) / head.alignment * head.alignment);
  check_ranges(head.tensors, file.size() - head.data_begin);
  return head;
}

}  // namespace heddle
