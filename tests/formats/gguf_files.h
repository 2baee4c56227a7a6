#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle {

/// The bytes of a GGUF file, put together by hand from the specification.
struct RawGguf {
  struct Tensor {
    std::string name;
    std::vector<std::uint64_t> dimensions;  // innermost first, as in the file
    std::uint32_t type = 0;
    std::string data;
    std::int64_t offset = -1;  // -1: behind the one before
  };

  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::int64_t tensor_count = -1, key_count = -1;             // -1: as many as there are
  std::vector<std::pair<std::string, std::string>> metadata;  // key, kind and value as bytes
  std::vector<Tensor> tensors;
  std::uint64_t alignment = 32;  // to which data is padded

  std::string bytes() const;
};

template <typename Value>
std::string raw(Value value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}
inline std::string raw_text(std::string_view text) { return raw(std::uint64_t{text.size()}) + std::string(text); }
template <typename Value>
std::string raw_value(std::uint32_t kind, Value value) {
  return raw(kind) + raw(value);
}
inline std::string raw_text_value(std::string_view text) { return raw(std::uint32_t{8}) + raw_text(text); }
/// Behind it stand the elements.
inline std::string raw_array(std::uint32_t kind, std::uint64_t count) {
  return raw(std::uint32_t{9}) + raw(kind) + raw(count);
}

inline std::string RawGguf::bytes() const {
  const auto pad = [this](std::string& text) { text.append((alignment - text.size() % alignment) % alignment, '\0'); };
  std::string head = magic + raw(version);
  head += raw(tensor_count < 0 ? static_cast<std::uint64_t>(tensors.size()) : static_cast<std::uint64_t>(tensor_count));
  head += raw(key_count < 0 ? static_cast<std::uint64_t>(metadata.size()) : static_cast<std::uint64_t>(key_count));
  for (const auto& [key, value] : metadata) head += raw_text(key) + value;
  std::string data;
  for (const Tensor& tensor : tensors) {
    head += raw_text(tensor.name) + raw(static_cast<std::uint32_t>(tensor.dimensions.size()));
    for (const std::uint64_t extent : tensor.dimensions) head += raw(extent);
    head += raw(tensor.type);
    head +=
        raw(tensor.offset < 0 ? static_cast<std::uint64_t>(data.size()) : static_cast<std::uint64_t>(tensor.offset));
    data += tensor.data;
    pad(data);
  }
  pad(head);
  return head + data;
}

}  // namespace heddle
