#include "cli/open_model.h"

#include <utility>

#include "base/error.h"
#include "kernels/cpu/table.h"
#include "train/run_weights.h"

namespace heddle::cli {

LoadedModel::LoadedModel(const ModelSource& model, std::unique_ptr<WeightFiles> weights, const CompiledRun& compiled)
    : executor(compiled.program_list(), compiled.plan, cpu::find_kernel, compiled.threads) {
  RunWeights(model, std::move(weights), compiled).load(compiled, 0, executor);
}

WeightRules rules_of(const ModelSource& model, const WeightFiles& weights) {
  return inference_rules(model.config, &weights, model.adapter_folder);
}

DType chosen_type(bool bf16, bool fp16) {
  if (bf16 && fp16) throw UsageError("--bf16 and --fp16 exclude each other");
  return bf16 ? DType::bf16 : fp16 ? DType::f16 : DType::f32;
}

}  // namespace heddle::cli
