#include "train/evaluate.h"

#include <cmath>

namespace heddle {

double EvaluationResult::perplexity() const { return std::exp(loss); }

EvaluationResult evaluate(Executor& executor, std::size_t program, const Dataset& dataset, std::int64_t rows) {
  const StreamFeed feed(executor);
  const BatchSchedule schedule(dataset, {.shuffle = false, .micro_batch_rows = rows});
  EvaluationResult result;
  Scalars scalars;
  for (std::int64_t step = 0; step < schedule.steps_per_epoch(); ++step) {
    for (const auto& batch : schedule.step(step).micro_batches) {
      feed.load(batch, scalars);
      executor.run(program, scalars);
      scalars.first_micro_batch = false;
      result.num_tokens += batch.supervised_tokens;
    }
  }
  result.loss = *executor.persistent(labels::loss).as<double>() / static_cast<double>(result.num_tokens);
  return result;
}

}  // namespace heddle
