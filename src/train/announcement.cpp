#include "train/announcement.h"

#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "config/schedule_names.h"

namespace heddle {
namespace {

std::string_view precision_name(Precision precision) {
  return precision == Precision::bf16 ? "bf16" : precision == Precision::fp16 ? "fp16" : "fp32";
}

std::string other_tiers(const RunConfig& run, const CompiledRun& compiled) {
  std::string text;
  if (compiled.plan.host.peak > 0) text += fmt::format(", {} on host", format_bytes(compiled.plan.host.peak));
  if (compiled.plan.nvme.peak > 0)
    text += fmt::format(", {} in {}", format_bytes(compiled.plan.nvme.peak), run.nvme_path);
  return text;
}

void warn_of_warmup(const RunConfig& run, std::int64_t total_steps) {
  const std::int64_t warmup = run.schedule.warmup_steps;
  const ScheduleType* type = find_schedule_type(run.schedule.type, false);
  if (warmup < total_steps || type == nullptr || !type->has_warmup) return;
  warning("warmup_steps is {}, the run has {} optimizer steps: it never reaches learning_rate", warmup, total_steps);
}

/// Nothing stops a model at positions that its training did not have, but it knows little of them. Dynamic rope is
/// made for them.
void warn_of_length(const RunConfig& run, const ModelConfig& model, const Dataset& train) {
  if (model.rope.type == RopeType::dynamic || model.rope.type == RopeType::none) return;
  std::int64_t longest = 0;
  for (std::int64_t i = 0; i < train.num_examples(); ++i) longest = std::max(longest, train.example_tokens(i));
  longest = std::min(longest, run.max_length);
  if (longest > model.max_positions) {
    warning("documents have up to {} tokens, the model {} positions (max_position_embeddings)", longest,
            model.max_positions);
  }
}

}  // namespace

std::string size_and_layout(const RunConfig& run, const Parameters& parameters, std::string_view transport) {
  const std::string layout =
      run.ranks > 1 ? fmt::format(", {} ranks over {}, ZeRO stage {}", run.ranks, transport, run.zero_stage) : "";
  const std::int64_t all = parameters.count(), trainable = parameters.trainable_count();
  const std::string trained =
      trainable < all ? fmt::format(" ({} trainable)", format_count(static_cast<std::uint64_t>(trainable))) : "";
  return fmt::format("{} parameters{}, {}{}", format_count(static_cast<std::uint64_t>(all)), trained,
                     precision_name(run.precision), layout);
}

void announce(const RunConfig& run, const ModelConfig& model, const CompiledRun& compiled, const Dataset& train,
              std::int64_t total_steps, std::string_view transport) {
  note("{}: {}; {}, {}; {} planned on device{}{}", model.model_type,
       size_and_layout(run, compiled.parameters, transport),
       format_count(static_cast<std::uint64_t>(train.num_rows()), "row"),
       format_count(static_cast<std::uint64_t>(total_steps), "optimizer step"), format_bytes(compiled.plan.device.peak),
       run.ranks > 1 ? " of each rank" : "", other_tiers(run, compiled));
  warn_of_warmup(run, total_steps);
  warn_of_length(run, model, train);
  if (run.curriculum.is_enabled) {
    note("curriculum_learning: rows are cut to {} positions in step 1, and to {} in the end",
         run.curriculum.length_at(1), run.curriculum.last_length());
  }
}

}  // namespace heddle
