#pragma once

#include <cstdint>
#include <optional>

#include "comm/communicator.h"
#include "data/dataset.h"
#include "monitor/metrics.h"
#include "train/executor.h"
#include "train/micro_batches.h"
#include "train/stream.h"

namespace heddle {

struct EvaluationResult {
  double loss = 0;                              ///< mean negative log-likelihood of the supervised tokens
  std::int64_t num_tokens = 0;                  ///< supervised tokens
  std::optional<PreferenceMetrics> preference;  ///< of pairs, whose mean the loss is then
  double perplexity() const;
};

/// Means over so many pairs.
PreferenceMetrics preference_metrics(const LossSums& sums, std::int64_t pairs);

/// Runs the forward program over the dataset in file order, `rows` at a time. The ranks of the communicator divide the
/// batches; all get the result of the whole, the same bits for any number of them. `reference`: of preference pairs.
EvaluationResult evaluate(Executor& executor, std::size_t program, const Dataset& dataset, std::int64_t rows,
                          Communicator& communicator, const ReferenceLogProbs* reference = nullptr);

}  // namespace heddle
