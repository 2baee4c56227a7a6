#include "cli/open_model.h"

#include "base/error.h"
#include "checkpoint/save.h"
#include "comm/job.h"
#include "kernels/cpu/table.h"
#include "train/training_state.h"
#include "train/weights.h"

namespace heddle::cli {

LoadedModel::LoadedModel(const ModelSource& model, const CompiledRun& compiled)
    : executor(compiled.program_list(), compiled.plan, cpu::find_kernel, compiled.threads) {
  if (!model.has_weights) fail("{}: expected a model folder with weights", model.config_path.string());
  if (is_checkpoint(model.folder)) {
    const Checkpoint checkpoint = open_checkpoint(model.folder, *alone());
    restore_weights(checkpoint, compiled.parameters, compiled.sharding, executor);
    return;
  }
  const WeightFolder folder(model.folder);
  load_weights(folder, match_weights(folder, compiled.parameters, model.config), compiled.parameters, compiled.sharding,
               executor);
}

DType chosen_type(bool bf16, bool fp16) {
  if (bf16 && fp16) throw UsageError("--bf16 and --fp16 exclude each other");
  return bf16 ? DType::bf16 : fp16 ? DType::f16 : DType::f32;
}

}  // namespace heddle::cli
