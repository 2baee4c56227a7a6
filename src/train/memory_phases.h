#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "formats/json.h"
#include "program/passes/passes.h"
#include "train/compile.h"

namespace heddle {

/// The most bytes of a tier that are in use at once in a part of a run, by class. The arena behind them is taken once,
/// for the whole run, and is as large as the greatest of them.
struct PhaseBytes {
  std::string name;  ///< "load", "init", "reference", "forward", "backward", "optimizer", "evaluation", "save"
  std::array<std::uint64_t, kBufferClasses> bytes{};
  std::uint64_t total() const;
};

/// Buffers that are alike and are alive together.
struct AliveGroup {
  BufferClass buffer_class = BufferClass::activations;
  std::string source;       ///< what makes them, block numbers as *: "linear of model.layers.*.mlp.up_proj.weight"
  std::uint64_t count = 0;  ///< buffers; 0: no buffer, but memory of the kernels, or between buffers
  std::uint64_t bytes = 0;  ///< of all
};

/// A tier at the instruction at which most is in use.
struct PeakMoment {
  std::string program, phase, unit, operation;  ///< empty where no instruction takes memory of the tier
  std::size_t instruction = 0;                  ///< of its program
  std::vector<AliveGroup> alive;                ///< the largest first; they add up to the bill's peak
};

struct TierPhases {
  Tier tier = Tier::device;
  std::vector<PhaseBytes> phases;  ///< in the order of a run
  PeakMoment peak;
};

/// Of a training run, for each tier in which something lies.
std::vector<TierPhases> memory_phases(const CompiledRun& compiled);

/// A line of phases for each tier, then what is alive at the peak of each.
std::string phases_text(const std::vector<TierPhases>& tiers);
/// The keys "phases" and "alive_at_peak" of `heddle plan --json --program`, each with a value for each tier.
void add_phases(Json& document, const std::vector<TierPhases>& tiers);

}  // namespace heddle
