#include "train/best_model.h"

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/agreement.h"
#include "checkpoint/folder.h"
#include "checkpoint/save.h"
#include "train/training_state.h"

namespace heddle {
namespace {

/// The checkpoint was saved right after its evaluation: its own state names itself, and that loss.
void require_same_evaluation(const Checkpoint& checkpoint, const BestEvaluation& best) {
  const JsonReader state(checkpoint.state(), (checkpoint.folder() / "manifest.json").string());
  const BestEvaluation saved = read_best(state, checkpoint.step());
  if (saved.step == best.step && saved.loss == best.loss) return;
  fail("{}: it is of another run: its best evaluation was of step {}, eval_loss {}; expected step {}, eval_loss {}",
       checkpoint.folder().string(), saved.step, saved.loss, best.step, best.loss);
}

}  // namespace

BestEvaluation with_checkpoint(const BestEvaluation& best, const std::filesystem::path& output_dir,
                               Communicator& communicator) {
  if (!best.is_known()) return best;
  const auto failure = first_failure(communicator, [&] {
    const auto folder = checkpoint_folder(output_dir, best.step);
    if (!std::filesystem::is_directory(folder)) fail("there is no {}", folder.string());
    require_same_evaluation(Checkpoint(folder), best);
  });
  if (!failure) return best;
  warning(
      "the weights of the best evaluation so far, of step {}, cannot be loaded at the end; the best from here on "
      "counts: {}",
      best.step, *failure);
  return {};
}

void load_best_model(const BestEvaluation& best, std::int64_t last_step, const std::filesystem::path& output_dir,
                     const Parameters& parameters, const Sharding& sharding, Executor& executor,
                     Communicator& communicator) {
  if (!best.is_known()) {
    warning("load_best_model_at_end: no evaluation had a finite loss; the weights are those of step {}", last_step);
    return;
  }
  if (best.step != last_step) {
    const Checkpoint checkpoint = open_checkpoint(checkpoint_folder(output_dir, best.step), communicator);
    agree(communicator, [&] {
      require_same_evaluation(checkpoint, best);
      restore_tensors(checkpoint, parameters, sharding, executor);
    });
    executor.release_nvme();
  }
  note("load_best_model_at_end: the weights are those of step {}, eval_loss {}", best.step, best.loss);
}

}  // namespace heddle
