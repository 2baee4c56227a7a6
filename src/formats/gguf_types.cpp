#include "formats/gguf_types.h"

#include <algorithm>
#include <array>
#include <utility>

namespace heddle {
namespace {

// enum ggml_type; what is missing was withdrawn (4, 5, 31-33, 36-38) or is never stored (9, 15: Q8_1, Q8_K).
constexpr std::array kNumbers = {
    std::pair{0u, DType::f32},      std::pair{1u, DType::f16},     std::pair{2u, DType::q4_0},
    std::pair{3u, DType::q4_1},     std::pair{6u, DType::q5_0},    std::pair{7u, DType::q5_1},
    std::pair{8u, DType::q8_0},     std::pair{10u, DType::q2_k},   std::pair{11u, DType::q3_k},
    std::pair{12u, DType::q4_k},    std::pair{13u, DType::q5_k},   std::pair{14u, DType::q6_k},
    std::pair{16u, DType::iq2_xxs}, std::pair{17u, DType::iq2_xs}, std::pair{18u, DType::iq3_xxs},
    std::pair{19u, DType::iq1_s},   std::pair{20u, DType::iq4_nl}, std::pair{21u, DType::iq3_s},
    std::pair{22u, DType::iq2_s},   std::pair{23u, DType::iq4_xs}, std::pair{24u, DType::i8},
    std::pair{25u, DType::i16},     std::pair{26u, DType::i32},    std::pair{27u, DType::i64},
    std::pair{28u, DType::f64},     std::pair{29u, DType::iq1_m},  std::pair{30u, DType::bf16},
    std::pair{34u, DType::tq1_0},   std::pair{35u, DType::tq2_0},  std::pair{39u, DType::mxfp4},
    std::pair{40u, DType::nvfp4},   std::pair{41u, DType::q1_0},   std::pair{42u, DType::q2_0},
};

}  // namespace

std::optional<DType> dtype_from_ggml(std::uint32_t number) {
  const auto* found = std::find_if(kNumbers.begin(), kNumbers.end(), [&](auto pair) { return pair.first == number; });
  return found == kNumbers.end() ? std::nullopt : std::optional(found->second);
}

std::optional<std::uint32_t> ggml_number(DType type) {
  const auto* found = std::find_if(kNumbers.begin(), kNumbers.end(), [&](auto pair) { return pair.second == type; });
  return found == kNumbers.end() ? std::nullopt : std::optional(found->first);
}

}  // namespace heddle
