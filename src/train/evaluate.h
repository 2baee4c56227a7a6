#pragma once

#include <cstdint>

#include "data/dataset.h"
#include "train/executor.h"
#include "train/stream.h"

namespace heddle {

struct EvaluationResult {
  double loss = 0;              ///< mean negative log-likelihood of the supervised tokens
  std::int64_t num_tokens = 0;  ///< supervised tokens
  double perplexity() const;
};

/// Runs the forward program over the dataset in file order, `rows` at a time.
EvaluationResult evaluate(Executor& executor, std::size_t program, const Dataset& dataset, std::int64_t rows);

}  // namespace heddle
