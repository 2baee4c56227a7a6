#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <queue>
#include <vector>

#include "base/error.h"
#include "data/dataset.h"
#include "data/permutation.h"
#include "data/token_limit.h"

namespace heddle {
namespace {

/// Sum of the greatest `count` of the values that are given one by one.
class GreatestSum {
 public:
  explicit GreatestSum(std::int64_t count) : count_(static_cast<std::size_t>(count)) {}
  void add(std::int64_t value) {
    if (kept_.size() == count_) {
      if (value <= kept_.top()) return;
      sum_ -= kept_.top();
      kept_.pop();
    }
    kept_.push(value);
    sum_ += value;
  }
  std::int64_t sum() const { return sum_; }

 private:
  std::size_t count_;
  std::int64_t sum_ = 0;
  std::priority_queue<std::int64_t, std::vector<std::int64_t>, std::greater<>> kept_;
};

}  // namespace

BatchSchedule::BatchSchedule(const Dataset& dataset, Options options) : dataset_(&dataset), options_(options) {
  if (options_.micro_batch_rows < 1) fail("rows of a micro-batch: {}; expected 1 or more", options_.micro_batch_rows);
  if (options_.accumulation < 1) fail("gradient_accumulation_steps is {}; expected 1 or more", options_.accumulation);
  // More rows than there are change nothing, and must not overflow.
  const std::int64_t rows = dataset.num_rows();
  options_.micro_batch_rows = std::min(options_.micro_batch_rows, rows);
  options_.accumulation = std::min(options_.accumulation, (rows - 1) / options_.micro_batch_rows + 1);
  rows_per_step_ = options_.micro_batch_rows * options_.accumulation;

  GreatestSum tokens(options_.micro_batch_rows), documents(options_.micro_batch_rows);
  for (std::int64_t row = 0; row < rows; ++row) {
    tokens.add(dataset.row_tokens(row));
    documents.add(dataset.row_documents(row));
  }
  token_capacity_ = tokens.sum();
  document_capacity_ = documents.sum();
  if (token_capacity_ > kMostTokens) {
    fail("a micro-batch of {} rows has up to {} tokens; expected at most {}: lower per_device_train_batch_size",
         options_.micro_batch_rows, token_capacity_, kMostTokens);
  }
}

std::int64_t BatchSchedule::steps_per_epoch() const { return (dataset_->num_rows() - 1) / rows_per_step_ + 1; }

StepBatch BatchSchedule::step(std::int64_t step, std::int64_t positions) const {
  StepBatch batch;
  this->step(step, batch, positions);
  return batch;
}

template <typename Function>
void BatchSchedule::for_each_row(std::int64_t step, Function&& use) const {
  const std::int64_t steps = steps_per_epoch(), epoch = step / steps, first = step % steps * rows_per_step_;
  const std::int64_t end = std::min(first + rows_per_step_, dataset_->num_rows());
  std::optional<Permutation> order;
  if (options_.shuffle) order.emplace(dataset_->num_rows(), options_.seed, static_cast<std::uint64_t>(epoch));
  for (std::int64_t place = first; place < end; ++place) use(place - first, order ? (*order)(place) : place);
}

std::vector<std::int64_t> BatchSchedule::rows(std::int64_t step) const {
  std::vector<std::int64_t> rows;
  for_each_row(step, [&](std::int64_t, std::int64_t row) { rows.push_back(row); });
  return rows;
}

void BatchSchedule::step(std::int64_t step, StepBatch& batch, std::int64_t positions) const {
  HEDDLE_CHECK(step >= 0);
  const std::int64_t steps = steps_per_epoch(), epoch = step / steps, step_in_epoch = step % steps;
  const std::int64_t first = step_in_epoch * rows_per_step_;
  const std::int64_t end = std::min(first + rows_per_step_, dataset_->num_rows());

  batch.epoch = static_cast<double>(epoch) + static_cast<double>(step_in_epoch + 1) / static_cast<double>(steps);
  batch.rows = end - first;
  batch.tokens = batch.supervised_tokens = 0;
  batch.micro_batches.resize(static_cast<std::size_t>((end - first - 1) / options_.micro_batch_rows + 1));
  for (MicroBatch& micro : batch.micro_batches) {
    micro.input_ids.clear();
    micro.labels.clear();
    micro.positions.clear();
    micro.document_starts.clear();
    micro.rows.clear();
    micro.supervised_tokens = 0;
    for (auto* array : {&micro.input_ids, &micro.labels, &micro.positions}) {
      array->reserve(static_cast<std::size_t>(token_capacity_));
    }
    micro.document_starts.reserve(static_cast<std::size_t>(document_capacity_ + 1));
    micro.rows.reserve(static_cast<std::size_t>(options_.micro_batch_rows));
  }
  for_each_row(step, [&](std::int64_t place, std::int64_t row) {
    dataset_->append_row(row, batch.micro_batches[static_cast<std::size_t>(place / options_.micro_batch_rows)],
                         positions);
  });
  for (const MicroBatch& micro : batch.micro_batches) {
    batch.tokens += micro.tokens();
    batch.supervised_tokens += micro.supervised_tokens;
  }
}

}  // namespace heddle
