#include "quantize/decode.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "quantize/four_bit.h"
#include "quantize/ggml_blocks.h"

namespace heddle {

void decode(DType type, const std::byte* tensor, std::int64_t elements, std::int64_t begin, std::int64_t count,
            float* out) {
  HEDDLE_CHECK(begin >= 0 && count >= 0 && begin <= elements && count <= elements - begin);
  if (is_floating(type) && dtype_bytes(type) > 1) {
    const auto bytes = static_cast<std::int64_t>(dtype_bytes(type));
    return convert(tensor + begin * bytes, type, out, DType::f32, count);
  }
  if (is_four_bit(type)) return decode_four_bit(type, tensor, elements, begin, count, out);
  const DecodeBlock decode_block = ggml_decoder(type);
  if (decode_block == nullptr) fail("values of type {} cannot be decoded", safetensors_name(type));
  const std::int64_t block = block_elements(type), block_bytes = storage_bytes(type, block);
  HEDDLE_CHECK(begin % block == 0 && count % block == 0);
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(tensor) + begin / block * block_bytes;
  for (std::int64_t at = 0; at < count; at += block, bytes += block_bytes) decode_block(bytes, out + at);
}

void encode(DType type, const float* values, std::int64_t count, std::byte* out) {
  if (is_floating(type) && dtype_bytes(type) > 1) return convert(values, DType::f32, out, type, count);
  const EncodeBlock encode_block = ggml_encoder(type);
  if (encode_block == nullptr) fail("values cannot be encoded as {}", safetensors_name(type));
  if (!std::all_of(values, values + count, [](float value) { return std::isfinite(value); })) {
    fail("a value is not finite: it has no code in {}", safetensors_name(type));
  }
  const std::int64_t block = block_elements(type), block_bytes = storage_bytes(type, block);
  HEDDLE_CHECK(count % block == 0);
  auto* bytes = reinterpret_cast<std::uint8_t*>(out);
  for (std::int64_t at = 0; at < count; at += block, bytes += block_bytes) encode_block(values + at, bytes);
}

bool has_encoder(DType type) { return (is_floating(type) && dtype_bytes(type) > 1) || ggml_encoder(type) != nullptr; }

}  // namespace heddle
