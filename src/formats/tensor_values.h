#pragma once

#include <cstddef>
#include <span>

#include "base/dtype.h"
#include "formats/json.h"

namespace heddle {

/// Whether append_values knows the type: all but those whose elements are packed into parts of bytes, for which the
/// safetensors format fixes no order.
bool has_values(DType dtype);

/// Appends the elements, whole ones, to a JSON array: whole numbers and truth values as such, complex ones as [real,
/// imaginary], the others decoded exactly. JSON has no NaN and no infinity: these are null.
void append_values(DType dtype, std::span<const std::byte> bytes, Json& values);

}  // namespace heddle
