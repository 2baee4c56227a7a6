#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace heddle {

/// Decodes elements [begin, begin + count) of a tensor of `elements` elements to fp32, for every type that
/// is_decodable() and real: plain floats, GGML's blocks with the bits of ggml's dequantize_row_*, bitsandbytes' four
/// bits. `tensor` is its first byte. `begin` is a multiple of the type's block, `count` too except at the tensor's end.
/// Throws Error naming the type if it has no decoder.
void decode(DType type, const std::byte* tensor, std::int64_t elements, std::int64_t begin, std::int64_t count,
            float* out);

/// Encodes `count` elements, whole blocks, with the bits of ggml's quantize_row_*_ref: Q8_0, Q4_0, Q4_1, Q5_0, Q5_1;
/// and to F32, F16, BF16. Throws Error naming the type for others.
void encode(DType type, const float* values, std::int64_t count, std::byte* out);
bool has_encoder(DType type);

}  // namespace heddle
