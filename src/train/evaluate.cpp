#include "train/evaluate.h"

#include <cmath>

#include "train/micro_batches.h"

namespace heddle {

double EvaluationResult::perplexity() const { return std::exp(loss); }

EvaluationResult evaluate(Executor& executor, std::size_t program, const Dataset& dataset, std::int64_t rows,
                          Communicator& communicator) {
  const StreamFeed feed(executor);
  // A round is a "step" of one micro-batch for each rank.
  const BatchSchedule schedule(dataset,
                               {.shuffle = false, .micro_batch_rows = rows, .accumulation = communicator.size()});
  EvaluationResult result;
  MicroBatches batches(communicator);
  Scalars scalars;
  for (std::int64_t round = 0; round < schedule.steps_per_epoch(); ++round) {
    const StepBatch step = schedule.step(round);
    batches.run(step, scalars, [&](const MicroBatch& batch, std::int64_t) {
      scalars.first_micro_batch = true;  // the loss of this batch alone
      feed.load(batch, scalars);
      executor.run(program, scalars);
      return *executor.persistent(labels::loss).as<double>();
    });
    result.num_tokens += step.supervised_tokens;
  }
  result.loss = batches.gather_losses() / static_cast<double>(result.num_tokens);
  return result;
}

}  // namespace heddle
