#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

/// Quantized weights as the kernels read them: a run of elements at a time, never a whole tensor.
namespace heddle::cpu {

struct QuantizedTensor {
  DType dtype = DType::q8_0;
  const std::byte* data = nullptr;
  std::int64_t elements = 0;
};

/// out[0, count) = elements [begin, begin + count) in f32, with the bits of quantize/decode.h. Any begin and count;
/// multiples of 32 are fast.
using DecodeRun = void (*)(const QuantizedTensor& tensor, std::int64_t begin, std::int64_t count, float* out);

/// out[k * lanes + i] = element begin + i * row_stride + k in f32, for `rows` rows i and `count` elements k of each;
/// `rows` is at most the lanes of a vector of f32. Lanes behind the rows are overwritten too. Fast where rows are whole
/// blocks and as many as lanes.
using DecodeColumns = void (*)(const QuantizedTensor& tensor, std::int64_t begin, std::int64_t row_stride,
                               std::int64_t rows, std::int64_t count, float* out);

/// The decoder of a quantized type, for the best instruction set that this machine has.
DecodeRun quantized_decoder(DType dtype);
DecodeColumns quantized_column_decoder(DType dtype);

}  // namespace heddle::cpu
