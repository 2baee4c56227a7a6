#include <algorithm>
#include <utility>

#include "base/error.h"
#include "formats/aside_file.h"
#include "formats/json.h"
#include "formats/safetensors.h"

namespace heddle {
namespace {

constexpr std::size_t kHeaderAlignment = 8;  // as the safetensors library pads it, so that tensors are aligned

}  // namespace

std::string safetensors_header(const std::string& path, const std::vector<SafetensorsWriter::Entry>& entries,
                               const std::map<std::string, std::string>& metadata, std::uint64_t& data_bytes) {
  Json::object_t members;
  if (!metadata.empty()) members.emplace_back("__metadata__", metadata);
  std::map<std::string_view, int> seen{{"__metadata__", 1}};
  std::uint64_t at = 0;
  for (const auto& entry : entries) {
    if (seen[entry.name]++ != 0) fail("{}: tensor {}: is given twice", path, text_excerpt(entry.name));
    const std::uint64_t element = std::max<std::uint64_t>(dtype_bytes(entry.dtype), 1);
    if (at % element != 0) {
      fail("{}: tensor {}: would begin at byte {}, no multiple of its element size {}; write larger elements first",
           path, text_excerpt(entry.name), at, element);
    }
    std::uint64_t bits = dtype_bits(entry.dtype);
    for (const std::int64_t extent : entry.shape) {
      HEDDLE_CHECK(extent >= 0);
      if (__builtin_mul_overflow(bits, static_cast<std::uint64_t>(extent), &bits)) {
        fail("{}: tensor {}: its shape overflows", path, text_excerpt(entry.name));
      }
    }
    if (bits % 8 != 0) fail("{}: tensor {}: does not end with a whole byte", path, text_excerpt(entry.name));
    const std::uint64_t bytes = bits / 8;
    Json value = Json::object();
    value["dtype"] = safetensors_name(entry.dtype);
    value["shape"] = entry.shape;
    value["data_offsets"] = {at, at + bytes};
    members.emplace_back(entry.name, std::move(value));
    at += bytes;
  }
  data_bytes = at;
  std::string text = Json(std::move(members)).dump();
  text.append((kHeaderAlignment - text.size() % kHeaderAlignment) % kHeaderAlignment, ' ');
  std::string header;
  for (unsigned shift = 0; shift < 64; shift += 8) header += static_cast<char>((text.size() >> shift) & 0xff);
  return header + text;
}

struct SafetensorsWriter::Impl {
  explicit Impl(const std::filesystem::path& path) : file(path) {}
  AsideFile file;
  std::uint64_t bytes = 0;  // header and data
};

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, const std::vector<Entry>& entries,
                                     const std::map<std::string, std::string>& metadata) {
  std::uint64_t data_bytes = 0;
  const std::string header = safetensors_header(path.string(), entries, metadata, data_bytes);
  impl_ = std::make_unique<Impl>(path);
  impl_->bytes = header.size() + data_bytes;
  impl_->file.append(std::as_bytes(std::span(header)));
}

SafetensorsWriter::~SafetensorsWriter() = default;

void SafetensorsWriter::append(std::span<const std::byte> bytes) {
  HEDDLE_CHECK(impl_->file.is_open());
  HEDDLE_CHECK(bytes.size() <= impl_->bytes - impl_->file.size());
  impl_->file.append(bytes);
}

void SafetensorsWriter::finish() {
  HEDDLE_CHECK(impl_->file.is_open());
  HEDDLE_CHECK(impl_->file.size() == impl_->bytes);
  impl_->file.commit();
}

}  // namespace heddle
