#pragma once

#include <cstdint>

#include "comm/communicator.h"
#include "data/dataset.h"
#include "train/executor.h"
#include "train/stream.h"

namespace heddle {

struct EvaluationResult {
  double loss = 0;              ///< mean negative log-likelihood of the supervised tokens
  std::int64_t num_tokens = 0;  ///< supervised tokens
  double perplexity() const;
};

/// Runs the forward program over the dataset in file order, `rows` at a time. The ranks of the communicator divide the
/// batches; all get the result of the whole, the same bits for any number of them.
EvaluationResult evaluate(Executor& executor, std::size_t program, const Dataset& dataset, std::int64_t rows,
                          Communicator& communicator);

}  // namespace heddle
