#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "program/program.h"

/// The optimizers, and the states that each keeps of a parameter: what the memory plan, checkpoints and the programs of
/// an optimizer step go by. Formulas and memory: docs/optimizers.md.
namespace heddle {

enum class OptimizerKind : std::uint8_t { adamw, adamw_8bit, lion, sgd, adafactor, muon };

struct OptimizerSettings {
  OptimizerKind kind = OptimizerKind::adamw;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  ///< adamw, adamw_8bit, muon's AdamW; lion without epsilon
  double weight_decay = 0.0;                          ///< on tensors of two or more dimensions
  double momentum = 0.0;                              ///< sgd, muon
  double dampening = 0.0;                             ///< sgd
  bool nesterov = false;                              ///< sgd, muon
  double decay_rate = -0.8, clip_threshold = 1.0;     ///< adafactor
  std::int64_t newton_schulz_steps = 5;               ///< muon
  bool matches_adamw = false;  ///< muon: steps of AdamW's root mean square (match_rms_adamw), else the original rule
  double adamw_rate = 1.0;     ///< muon: learning rate of what AdamW updates, as a multiple of the run's
};

/// Elements of a block that share a scale in adamw_8bit; smaller tensors than that minimum keep states in f32.
inline constexpr std::int64_t kStateBlock = 256, kLeast8BitElements = 4096;

struct OptimizerState {
  std::string_view name;  ///< "exp_avg", as checkpoints and the memory bill call it
  DType dtype = DType::f32;
  Shape shape;               ///< of the whole
  std::int64_t covered = 1;  ///< consecutive elements of the parameter that one element belongs to; 0: it is of the
                             ///< tensor as a whole, and each rank holds all of it
};

/// What updates that parameter: the optimizer itself, or AdamW where it leaves a tensor to that.
OptimizerKind kind_for(const OptimizerSettings& settings, const Parameter& parameter);

/// In the order of the operands of the operation that updates them; without master weights.
std::vector<OptimizerState> optimizer_states(const OptimizerSettings& settings, const Parameter& parameter);

/// Label of the persistent buffer of a state.
std::string state_label(const std::string& parameter, std::string_view state);

}  // namespace heddle
