#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "formats/aside_file.h"
#include "formats/gguf.h"
#include "formats/gguf_types.h"
#include "formats/json.h"

namespace heddle {
namespace {

template <typename Value>
void put(std::string& out, Value value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void put_text(std::string& out, std::string_view text) {
  put(out, std::uint64_t{text.size()});
  out += text;
}

void put_kind(std::string& out, GgufKind kind) { put(out, static_cast<std::uint32_t>(kind)); }

void put_value(std::string& out, std::uint64_t value) {
  const bool is_narrow = value <= std::numeric_limits<std::uint32_t>::max();
  put_kind(out, is_narrow ? GgufKind::u32 : GgufKind::u64);
  is_narrow ? put(out, static_cast<std::uint32_t>(value)) : put(out, value);
}

bool fits_i32(std::int64_t value) {
  return value >= std::numeric_limits<std::int32_t>::min() && value <= std::numeric_limits<std::int32_t>::max();
}

void put_value(std::string& out, std::int64_t value) {
  put_kind(out, fits_i32(value) ? GgufKind::i32 : GgufKind::i64);
  fits_i32(value) ? put(out, static_cast<std::int32_t>(value)) : put(out, value);
}

void put_value(std::string& out, double value) {
  put_kind(out, GgufKind::f32);
  put(out, static_cast<float>(value));
}

void put_value(std::string& out, bool value) {
  put_kind(out, GgufKind::boolean);
  put(out, static_cast<std::uint8_t>(value));
}

void put_value(std::string& out, const std::string& value) {
  put_kind(out, GgufKind::string);
  put_text(out, value);
}

void put_array_head(std::string& out, GgufKind kind, std::size_t count) {
  put_kind(out, GgufKind::array);
  put_kind(out, kind);
  put(out, std::uint64_t{count});
}

void put_value(std::string& out, const std::vector<std::int64_t>& values) {
  const bool is_narrow = std::all_of(values.begin(), values.end(), fits_i32);
  put_array_head(out, is_narrow ? GgufKind::i32 : GgufKind::i64, values.size());
  for (const std::int64_t value : values) is_narrow ? put(out, static_cast<std::int32_t>(value)) : put(out, value);
}

void put_value(std::string& out, const std::vector<double>& values) {
  put_array_head(out, GgufKind::f32, values.size());
  for (const double value : values) put(out, static_cast<float>(value));
}

void put_value(std::string& out, const std::vector<bool>& values) {
  put_array_head(out, GgufKind::boolean, values.size());
  for (const bool value : values) put(out, static_cast<std::uint8_t>(value));
}

void put_value(std::string& out, const std::vector<std::string>& values) {
  put_array_head(out, GgufKind::string, values.size());
  for (const std::string& value : values) put_text(out, value);
}

std::uint64_t padding_behind(std::uint64_t bytes) {
  return (kGgufDefaultAlignment - bytes % kGgufDefaultAlignment) % kGgufDefaultAlignment;
}

std::uint64_t bytes_of(const std::string& path, const GgufWriter::Entry& entry) {
  const std::string where = fmt::format("{}: tensor {}", path, text_excerpt(entry.name));
  std::int64_t elements = 1;
  for (const std::int64_t extent : entry.shape) {
    HEDDLE_CHECK(extent > 0);
    if (__builtin_mul_overflow(elements, extent, &elements)) fail("{}: its shape overflows", where);
  }
  if (entry.shape.size() > kGgufMaxDimensions) {
    fail("{}: has {} dimensions; GGUF takes at most {}", where, entry.shape.size(), kGgufMaxDimensions);
  }
  const std::int64_t block = block_elements(entry.dtype), row = entry.shape.empty() ? 1 : entry.shape.back();
  if (row % block != 0) {
    fail("{}: has rows of {} elements; {} comes in blocks of {}", where, row, safetensors_name(entry.dtype), block);
  }
  return static_cast<std::uint64_t>(storage_bytes(entry.dtype, elements));
}

}  // namespace

struct GgufWriter::Impl {
  explicit Impl(const std::filesystem::path& path) : file(path) {}

  /// Zeros up to the alignment behind the tensors that are whole.
  void pad() {
    while (next < sizes.size() && left == 0) {
      const std::vector<std::byte> zeros(padding_behind(file.size()));
      file.append(zeros);
      if (++next < sizes.size()) left = sizes[next];
    }
  }

  AsideFile file;
  std::vector<std::uint64_t> sizes;  // of the tensors
  std::size_t next = 0;              // the tensor being written
  std::uint64_t left = 0;            // bytes of it still to come
};

GgufWriter::GgufWriter(const std::filesystem::path& path, const GgufMetadata& metadata,
                       const std::vector<Entry>& entries) {
  HEDDLE_CHECK(!metadata.has("general.alignment"));
  std::string head = "GGUF";
  put(head, kGgufVersion);
  put(head, std::uint64_t{entries.size()});
  put(head, std::uint64_t{metadata.entries().size()});
  for (const auto& [key, value] : metadata.entries()) {
    put_text(head, key);
    std::visit([&](const auto& held) { put_value(head, held); }, value);
  }
  std::vector<std::uint64_t> sizes;
  std::set<std::string_view> names;
  std::uint64_t at = 0;
  for (const Entry& entry : entries) {
    if (!names.insert(entry.name).second) {
      fail("{}: tensor {} is given twice", path.string(), text_excerpt(entry.name));
    }
    const auto type = ggml_number(entry.dtype);
    if (!type) {
      fail("{}: tensor {} has type {}, which GGUF lacks", path.string(), text_excerpt(entry.name),
           safetensors_name(entry.dtype));
    }
    sizes.push_back(bytes_of(path.string(), entry));
    put_text(head, entry.name);
    put(head, static_cast<std::uint32_t>(entry.shape.size()));
    for (auto extent = entry.shape.rbegin(); extent != entry.shape.rend(); ++extent) {
      put(head, static_cast<std::uint64_t>(*extent));
    }
    put(head, *type);
    put(head, at);
    at += sizes.back() + padding_behind(sizes.back());
  }
  head.append(padding_behind(head.size()), '\0');

  impl_ = std::make_unique<Impl>(path);
  impl_->sizes = std::move(sizes);
  if (!impl_->sizes.empty()) impl_->left = impl_->sizes.front();
  impl_->file.append(std::as_bytes(std::span(head)));
}

GgufWriter::~GgufWriter() = default;

void GgufWriter::append(std::span<const std::byte> bytes) {
  HEDDLE_CHECK(impl_->file.is_open());
  HEDDLE_CHECK(bytes.size() <= impl_->left);
  impl_->file.append(bytes);
  impl_->left -= bytes.size();
  impl_->pad();
}

const std::filesystem::path& GgufWriter::unfinished_path() const { return impl_->file.partial_path(); }

void GgufWriter::finish() {
  HEDDLE_CHECK(impl_->file.is_open());
  HEDDLE_CHECK(impl_->next == impl_->sizes.size());
  impl_->file.commit();
}

}  // namespace heddle
