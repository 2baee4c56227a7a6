#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.h"

namespace heddle {

/// One block of a GGML type to fp32 and back. Bytes and arithmetic are those of ggml's dequantize_row_* and
/// quantize_row_*_ref (github.com/ggml-org/ggml, src/ggml-quants.c): each product and sum rounded to fp32 by itself, in
/// the same order, so that the bits agree. Blocks are block_elements(type) values in storage_bytes(type, that) bytes.
using DecodeBlock = void (*)(const std::uint8_t* block, float* values);
using EncodeBlock = void (*)(const float* values, std::uint8_t* block);

/// nullptr for types without one.
DecodeBlock ggml_decoder(DType type);
EncodeBlock ggml_encoder(DType type);

/// The decoders of blocks of 256 values with scales of scales (ggml_super_blocks.cpp).
DecodeBlock super_block_decoder(DType type);

/// The 16 values that codes of IQ4_NL and IQ4_XS stand for.
extern const std::span<const std::int8_t, 16> iq4_values;

/// A scale as blocks hold it: fp16, little-endian.
float load_half(const std::uint8_t* bytes);

}  // namespace heddle
