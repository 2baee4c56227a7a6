#pragma once

#include "planner/hardware.h"
#include "train/compile.h"

namespace heddle {

/// An optimizer step on one rank, by a roofline (Williams, Waterman, Patterson 2009): each instruction takes its FLOPs
/// or its bytes, whichever take longer. Queues run side by side, as the executor runs them: transfers and collectives
/// cost what the computation waits for them. That they slow it down where both use the same memory is not counted.
struct StepCost {
  double seconds = 0;
  double flops = 0;
  double moved_bytes = 0;  ///< between tiers or ranks, and what the processor updates in offloaded tiers
};

/// Of full micro-batches, `accumulation` of them in a step.
StepCost estimate_step(const CompiledRun& compiled, std::int64_t accumulation, const Device& device);

}  // namespace heddle
