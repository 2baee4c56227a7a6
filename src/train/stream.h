#pragma once

#include "data/batches.h"
#include "train/executor.h"
#include "train/reference_log_probs.h"

namespace heddle {

/// What a rank without rows computes, so that it takes part in the collectives of the others: one token, no target.
MicroBatch idle_micro_batch();

/// Puts a micro-batch into the buffers from which the programs read it.
class StreamFeed {
 public:
  /// `reference` is of the data set that the micro-batches are made of; null where programs do not ask for it.
  explicit StreamFeed(const Executor& executor, const ReferenceLogProbs* reference = nullptr);
  /// Sets tokens and documents of `scalars`.
  void load(const MicroBatch& batch, Scalars& scalars) const;

 private:
  TensorView input_ids_, labels_, positions_, document_starts_, reference_log_probs_;
  const ReferenceLogProbs* reference_;
};

}  // namespace heddle
