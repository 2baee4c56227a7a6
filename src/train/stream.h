#pragma once

#include "data/batches.h"
#include "train/executor.h"

namespace heddle {

/// What a rank without rows computes, so that it takes part in the collectives of the others: one token, no target.
MicroBatch idle_micro_batch();

/// Puts a micro-batch into the buffers from which the programs read it.
class StreamFeed {
 public:
  explicit StreamFeed(const Executor& executor);
  /// Sets tokens and documents of `scalars`.
  void load(const MicroBatch& batch, Scalars& scalars) const;

 private:
  TensorView input_ids_, labels_, positions_, document_starts_;
};

}  // namespace heddle
