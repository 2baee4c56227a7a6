#pragma once

#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "data/dataset.h"
#include "train/executor.h"

namespace heddle {

/// What the reference model makes of each answer of a data set of preference pairs: log-probabilities that are computed
/// once, before the first step, by the weights that are there then. So the model is held once.
class ReferenceLogProbs {
 public:
  /// The data set must outlive it. `rows`: pairs of a micro-batch. They are taken in file order, so that no bit depends
  /// on which of them a run uses.
  ReferenceLogProbs(const Dataset& dataset, std::int64_t rows);

  /// Runs the program of that index over the pairs that are `needed` (by row of the data set; all where it is empty)
  /// and those that share their micro-batches. The ranks of the communicator divide them; all know all in the end.
  void compute(Executor& executor, std::size_t program, const std::vector<bool>& needed, Communicator& communicator);

  /// For the documents of a micro-batch of the data set, in order.
  void load(const MicroBatch& batch, const TensorView& target) const;

 private:
  const Dataset* dataset_;
  std::int64_t rows_;
  std::vector<double> values_;  // chosen and rejected of each row
};

/// The rows that steps first_step .. end_step - 1 of the schedule take.
std::vector<bool> rows_of_steps(const BatchSchedule& schedule, std::int64_t rows, std::int64_t first_step,
                                std::int64_t end_step);

}  // namespace heddle
