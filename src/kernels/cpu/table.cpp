#include "kernels/cpu/table.h"

#include <algorithm>
#include <array>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/replaced_rows.h"

namespace heddle::cpu {
namespace {

struct Entry {
  std::string_view operation;
  Kernel kernel;
};

constexpr std::array kTable = {
    Entry{"embedding", embedding},
    Entry{"embedding_backward", embedding_backward},
    Entry{"replace_columns", replace_columns},
    Entry{"neftune", neftune},
    Entry{"linear", linear},
    Entry{"linear_group", linear_group},
    Entry{"linear_backward_input", linear_backward_input},
    Entry{"linear_backward_weight", linear_backward_weight},
    Entry{"rms_norm", rms_norm},
    Entry{"rms_norm_backward", rms_norm_backward},
    Entry{"layer_norm", layer_norm},
    Entry{"layer_norm_backward", layer_norm_backward},
    Entry{"rope_table", rope_table},
    Entry{"rope", rope},
    Entry{"rope_backward", rope_backward},
    Entry{"attention", attention},
    Entry{"attention_backward", attention_backward},
    Entry{"glu", glu},
    Entry{"glu_backward", glu_backward},
    Entry{"activation", activation},
    Entry{"activation_backward", activation_backward},
    Entry{"add", add},
    Entry{"scale", scale},
    Entry{"softcap", softcap},
    Entry{"dropout", dropout},
    Entry{"split", split},
    Entry{"concat", concat},
    Entry{"linear_cross_entropy", linear_cross_entropy},
    Entry{"linear_cross_entropy_gradient", linear_cross_entropy_gradient},
    Entry{"linear_log_probs", linear_log_probs},
    Entry{"linear_log_probs_backward", linear_log_probs_backward},
    Entry{"preference_loss", preference_loss},
    Entry{"preference_loss_gradient", preference_loss_gradient},
    Entry{"dora_norm", dora_norm},
    Entry{"dora_scale", dora_scale},
    Entry{"dora_scale_backward", dora_scale_backward},
    Entry{"select_last", select_last},
    Entry{"kv_append", kv_append},
    Entry{"accumulate_gradient", accumulate_gradient},
    Entry{"sum_of_squares", sum_of_squares},
    Entry{"gradient_norm", gradient_norm},
    Entry{"adamw", adamw},
    Entry{"adamw_8bit", adamw_8bit},
    Entry{"lion", lion},
    Entry{"sgd", sgd},
    Entry{"muon_momentum", muon_momentum},
    Entry{"newton_schulz", newton_schulz},
    Entry{"adafactor", adafactor},
    Entry{"descend", descend},
};

}  // namespace

Kernel find_kernel(std::string_view operation) {
  const auto* found =
      std::find_if(kTable.begin(), kTable.end(), [&](const Entry& e) { return e.operation == operation; });
  return found == kTable.end() ? nullptr : found->kernel;
}

}  // namespace heddle::cpu
