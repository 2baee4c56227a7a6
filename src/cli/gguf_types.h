#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"

/// The types in which `heddle export` and `heddle quantize` write matrices of a GGUF file, as their --type names them.
namespace heddle::cli {

/// All of them, or only those that quantize.
std::vector<std::string> gguf_type_names(bool quantized_only);
std::optional<DType> gguf_type_of(const std::string& name);

}  // namespace heddle::cli
