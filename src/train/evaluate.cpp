#include "train/evaluate.h"

#include <cmath>

namespace heddle {

double EvaluationResult::perplexity() const { return std::exp(loss); }

PreferenceMetrics preference_metrics(const LossSums& sums, std::int64_t pairs) {
  const auto mean = [&](PreferenceSum sum) { return sums.of(sum) / static_cast<double>(pairs); };
  PreferenceMetrics metrics;
  metrics.chosen_reward = mean(PreferenceSum::chosen_reward);
  metrics.rejected_reward = mean(PreferenceSum::rejected_reward);
  metrics.accuracy = mean(PreferenceSum::accuracy);
  metrics.margin = metrics.chosen_reward - metrics.rejected_reward;
  metrics.chosen_log_prob = mean(PreferenceSum::chosen_log_prob);
  metrics.rejected_log_prob = mean(PreferenceSum::rejected_log_prob);
  return metrics;
}

EvaluationResult evaluate(Executor& executor, std::size_t program, const Dataset& dataset, std::int64_t rows,
                          Communicator& communicator, const ReferenceLogProbs* reference) {
  const StreamFeed feed(executor, reference);
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
      return LossSums::of(executor);
    });
    result.num_tokens += step.supervised_tokens;
  }
  const LossSums sums = batches.gather_losses();
  if (dataset.has_pairs()) result.preference = preference_metrics(sums, dataset.num_rows());
  result.loss = sums.loss / static_cast<double>(dataset.has_pairs() ? dataset.num_rows() : result.num_tokens);
  return result;
}

}  // namespace heddle
