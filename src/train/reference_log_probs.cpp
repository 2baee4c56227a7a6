#include "train/reference_log_probs.h"

#include <algorithm>

#include "base/error.h"
#include "train/micro_batches.h"

namespace heddle {
namespace {

/// Numbers of the micro-batches that have a row which is needed.
std::vector<std::int64_t> batches_with(const std::vector<bool>& needed, std::int64_t rows, std::int64_t rows_of_batch) {
  std::vector<std::int64_t> batches;
  for (std::int64_t row = 0; row < rows; ++row) {
    if (!needed.empty() && !needed[static_cast<std::size_t>(row)]) continue;
    const std::int64_t batch = row / rows_of_batch;
    if (batches.empty() || batches.back() != batch) batches.push_back(batch);
  }
  return batches;
}

}  // namespace

ReferenceLogProbs::ReferenceLogProbs(const Dataset& dataset, std::int64_t rows)
    : dataset_(&dataset),
      rows_(std::min(rows, dataset.num_rows())),
      values_(static_cast<std::size_t>(2 * dataset.num_rows()), 0.0) {
  HEDDLE_CHECK(dataset.has_pairs());
}

void ReferenceLogProbs::compute(Executor& executor, std::size_t program, const std::vector<bool>& needed,
                                Communicator& communicator) {
  const StreamFeed feed(executor);
  const TensorView log_probs = executor.persistent(labels::log_probs);
  const BatchSchedule schedule(*dataset_, {.shuffle = false, .micro_batch_rows = rows_, .accumulation = 1});
  const auto numbers = batches_with(needed, dataset_->num_rows(), rows_);
  const auto count = static_cast<std::int64_t>(numbers.size()), ranks = std::int64_t{communicator.size()};
  MicroBatches batches(communicator);
  Scalars scalars;
  StepBatch own, round;
  for (std::int64_t first = 0; first < count; first += ranks) {
    round.micro_batches.assign(static_cast<std::size_t>(std::min(ranks, count - first)), {});
    if (const std::int64_t mine = first + communicator.rank(); mine < count) {
      schedule.step(numbers[static_cast<std::size_t>(mine)], own);
      round.micro_batches[static_cast<std::size_t>(communicator.rank())] = own.micro_batches.at(0);
    }
    batches.run(round, scalars, [&](const MicroBatch& batch, std::int64_t) {
      feed.load(batch, scalars);
      executor.run(program, scalars);
      for (std::size_t i = 0; i < batch.rows.size(); ++i) {
        auto* of_row = values_.data() + 2 * batch.rows[i];
        std::copy_n(log_probs.as<double>() + 2 * i, 2, of_row);
      }
      return 0.0;
    });
  }
  // Each value is known to one rank, and zero elsewhere.
  communicator.all_reduce(std::span<double>(values_), heddle::Reduction::sum, "reference log-probabilities");
}

void ReferenceLogProbs::load(const MicroBatch& batch, const TensorView& target) const {
  HEDDLE_CHECK(static_cast<std::int64_t>(2 * batch.rows.size()) <= target.elements());
  for (std::size_t i = 0; i < batch.rows.size(); ++i)
    std::copy_n(values_.data() + 2 * batch.rows[i], 2, target.as<double>() + 2 * i);
}

std::vector<bool> rows_of_steps(const BatchSchedule& schedule, std::int64_t rows, std::int64_t first_step,
                                std::int64_t end_step) {
  std::vector<bool> needed(static_cast<std::size_t>(rows), false);
  // Two epochs from anywhere hold a whole one.
  end_step = std::min(end_step, first_step + 2 * schedule.steps_per_epoch());
  for (std::int64_t step = first_step; step < end_step; ++step)
    for (const std::int64_t row : schedule.rows(step)) needed[static_cast<std::size_t>(row)] = true;
  return needed;
}

}  // namespace heddle
