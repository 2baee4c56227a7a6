#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "data/batches.h"
#include "ops/kernel.h"
#include "train/stream.h"

namespace heddle {

/// What micro-batches add up to: their losses, and what preference_loss counts beside them.
struct LossSums {
  double loss = 0.0;
  std::array<double, kPreferenceSums> preference{};

  LossSums() = default;
  LossSums(double only) : loss(only) {}  // NOLINT: most losses have nothing beside them
  /// Those of the micro-batch that ran last.
  static LossSums of(const Executor& executor);
  void add(const LossSums& other);
  double of(PreferenceSum sum) const { return preference[static_cast<std::size_t>(sum)]; }
};

/// How ranks divide micro-batches: the i-th goes to rank i % R, in round i / R. In the last round some ranks may be
/// left without one; they compute an idle micro-batch, since the others' collectives need them, and what they add is
/// nothing.
class MicroBatches {
 public:
  explicit MicroBatches(Communicator& communicator) : communicator_(communicator), idle_(idle_micro_batch()) {}

  /// Calls compute(micro-batch, its index in the step) for this rank's micro-batches and keeps the losses that it
  /// returns. Sets scalars.active_ranks and scalars.first_micro_batch.
  template <typename Compute>
  void run(const StepBatch& step, Scalars& scalars, Compute&& compute) {
    const auto count = static_cast<std::int64_t>(step.micro_batches.size());
    const std::int64_t ranks = communicator_.size();
    for (std::int64_t first = 0; first < count; first += ranks) {
      const std::int64_t index = first + communicator_.rank();
      scalars.active_ranks = static_cast<int>(std::min(ranks, count - first));
      scalars.first_micro_batch = first == 0;
      const bool is_idle = index >= count;
      const LossSums loss = compute(is_idle ? idle_ : step.micro_batches[static_cast<std::size_t>(index)], index);
      losses_.push_back(is_idle ? LossSums() : loss);
    }
  }

  /// Sum of all ranks' losses since the last call, in the order of the micro-batches; the same on all ranks.
  LossSums gather_losses();

 private:
  Communicator& communicator_;
  MicroBatch idle_;
  std::vector<LossSums> losses_, all_;
};

}  // namespace heddle
