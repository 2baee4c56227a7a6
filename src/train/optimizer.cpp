#include "train/optimizer.h"

#include <cmath>

#include "base/error.h"

namespace heddle {
namespace {

OptimizerKind kind_of(const std::string& name) {
  if (name == "adamw") return OptimizerKind::adamw;
  if (name == "adamw_8bit") return OptimizerKind::adamw_8bit;
  if (name == "lion") return OptimizerKind::lion;
  if (name == "sgd") return OptimizerKind::sgd;
  if (name == "adafactor") return OptimizerKind::adafactor;
  if (name == "muon") return OptimizerKind::muon;
  fail("optim is {}, which no program is made for", name);
}

}  // namespace

OptimizerSettings optimizer_settings(const RunConfig& run) {
  const auto argument = [&](const char* name, double fallback) {
    const auto found = run.optim_args.find(name);
    return found == run.optim_args.end() ? fallback : found->second;
  };
  OptimizerSettings settings{.kind = kind_of(run.optim),
                             .beta1 = run.adam_beta1,
                             .beta2 = run.adam_beta2,
                             .epsilon = run.adam_epsilon,
                             .weight_decay = run.weight_decay};
  const bool is_muon = settings.kind == OptimizerKind::muon;
  settings.momentum = argument("momentum", is_muon ? 0.95 : 0.0);
  settings.dampening = argument("dampening", 0.0);
  settings.nesterov = argument("nesterov", is_muon ? 1.0 : 0.0) != 0.0;
  settings.decay_rate = argument("decay_rate", -0.8);
  settings.clip_threshold = argument("clip_threshold", 1.0);
  settings.newton_schulz_steps = static_cast<std::int64_t>(argument("ns_steps", 5.0));
  settings.matches_adamw = argument("adjust_lr_fn", 0.0) != 0.0;
  if (run.learning_rate > 0.0) settings.adamw_rate = argument("adam_lr", run.learning_rate) / run.learning_rate;
  return settings;
}

Regularization regularization_of(const RunConfig& run) {
  return {.neftune_noise_alpha = run.neftune_noise_alpha.value_or(0.0),
          .label_smoothing = run.label_smoothing_factor,
          .z_loss = run.z_loss};
}

void set_update(Scalars& scalars, const RunConfig& run, std::int64_t update, double learning_rate) {
  const auto k = static_cast<double>(update);
  scalars.update = update;
  scalars.learning_rate = learning_rate;
  scalars.bias_correction1 = 1.0 - std::pow(run.adam_beta1, k);
  scalars.bias_correction2 = 1.0 - std::pow(run.adam_beta2, k);
}

}  // namespace heddle
