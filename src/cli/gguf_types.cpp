#include "cli/gguf_types.h"

#include <array>
#include <utility>

namespace heddle::cli {
namespace {

constexpr std::array<std::pair<const char*, DType>, 8> kTypes = {{{"f32", DType::f32},
                                                                  {"f16", DType::f16},
                                                                  {"bf16", DType::bf16},
                                                                  {"q8_0", DType::q8_0},
                                                                  {"q5_1", DType::q5_1},
                                                                  {"q5_0", DType::q5_0},
                                                                  {"q4_1", DType::q4_1},
                                                                  {"q4_0", DType::q4_0}}};

}  // namespace

std::vector<std::string> gguf_type_names(bool quantized_only) {
  std::vector<std::string> names;
  for (const auto& [name, type] : kTypes) {
    if (is_quantized(type) || !quantized_only) names.emplace_back(name);
  }
  return names;
}

std::optional<DType> gguf_type_of(const std::string& name) {
  for (const auto& [known, type] : kTypes) {
    if (name == known) return type;
  }
  return std::nullopt;
}

}  // namespace heddle::cli
