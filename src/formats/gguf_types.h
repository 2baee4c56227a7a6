#pragma once

#include <cstdint>
#include <optional>

#include "base/dtype.h"

namespace heddle {

/// Numbers that GGUF's values and tensors carry for their types; reader and writer share them.
/// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
enum class GgufKind : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

constexpr std::uint32_t kGgufVersion = 3;
constexpr std::uint64_t kGgufDefaultAlignment = 32;
constexpr int kGgufMaxDimensions = 4;

/// The number of a type in ggml, and the way back; nothing where the other side lacks the type.
std::optional<DType> dtype_from_ggml(std::uint32_t number);
std::optional<std::uint32_t> ggml_number(DType type);

}  // namespace heddle
