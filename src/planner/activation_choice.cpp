#include "planner/activation_choice.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "planner/step_cost.h"

namespace heddle {
namespace {

using Blocks = std::vector<BlockActivations>;

struct Candidate {
  Blocks blocks;
  double seconds = 0;
  std::int64_t excess = 0;
  bool fits_device = false;

  bool fits() const { return excess <= 0; }
};

/// Less time, or as much and fewer bytes: of two modes that cost the same nothing is gained by moving or rebuilding.
bool is_better(const Candidate& a, const Candidate& b) {
  return std::pair(a.seconds, a.excess) < std::pair(b.seconds, b.excess);
}

std::vector<BlockActivations> modes_of(const RunConfig& run) {
  std::vector<BlockActivations> modes;
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    modes.push_back({recompute, false});
    if (run.offload_activations != OffloadDevice::none) modes.push_back({recompute, true});
  }
  return modes;
}

class ActivationSearch {
 public:
  ActivationSearch(const RunConfig& run, const CompileVariant& compile, const MemoryLimits& limits,
                   const Device& device)
      : run_(run), compile_(compile), limits_(limits), device_(device), modes_(modes_of(run)) {}

  Blocks run() {
    count_blocks();
    for (const BlockActivations& mode : modes_) uniform_.push_back(plan(Blocks(blocks_, mode)));
    for (const Candidate& candidate : uniform_) offer(candidate);
    for (std::size_t small = 0; small < modes_.size(); ++small) {
      for (std::size_t fast = 0; fast < modes_.size(); ++fast) mix(small, fast);
    }
    if (!best_) spare_last_block();
    if (!best_) return least_.blocks;
    speed_up_one_block();
    return best_->blocks;
  }

 private:
  /// Any setting has the same blocks.
  void count_blocks() {
    RunConfig plain = run_;
    plain.recompute = Recompute::none;
    const CompiledRun compiled = compile_(plain);
    const auto& units = compiled.programs[static_cast<std::size_t>(compiled.micro_batch)].units;
    blocks_ = static_cast<std::size_t>(std::ranges::count_if(units, is_block));
  }

  Candidate plan(Blocks blocks) const {
    RunConfig variant = run_;
    variant.block_activations = std::move(blocks);
    const CompiledRun compiled = compile_(variant);
    return {std::move(variant.block_activations),
            estimate_step(compiled, run_.gradient_accumulation_steps, device_).seconds, limits_.excess(compiled.plan),
            compiled.plan.device.peak <= limits_.device};
  }

  void offer(const Candidate& candidate) {
    if (candidate.fits() && (!best_ || is_better(candidate, *best_))) best_ = candidate;
    if (least_.blocks.empty() || candidate.excess < least_.excess) least_ = candidate;
  }

  /// What the last block keeps is there in its backward in any case: rebuilding it may need more, not less.
  void spare_last_block() {
    for (const BlockActivations& mode : modes_) {
      for (const BlockActivations& last : modes_) {
        Blocks blocks(blocks_, mode);
        blocks.back() = last;
        if (last != mode) offer(plan(std::move(blocks)));
      }
    }
  }

  /// The first blocks, as few as fit, in the mode that fits, the others in the faster one that does not. Where offload
  /// of all blocks is more than the host has, as few as fit on the device.
  void mix(std::size_t small, std::size_t fast) {
    const Candidate &slow = uniform_[small], &quick = uniform_[fast];
    const auto fits = [&](const Candidate& candidate) {
      return slow.fits() ? candidate.fits() : candidate.fits_device;
    };
    if (!fits(slow) || fits(quick) || (slow.fits() && quick.seconds >= slow.seconds)) return;
    std::size_t low = 0, high = blocks_;  // low does not fit, high does
    while (high - low > 1) {
      const std::size_t middle = low + (high - low) / 2;
      Blocks blocks(blocks_, modes_[fast]);
      std::fill_n(blocks.begin(), middle, modes_[small]);
      const Candidate candidate = plan(std::move(blocks));
      offer(candidate);
      (fits(candidate) ? high : low) = middle;
    }
  }

  void speed_up_one_block() {
    const Blocks start = best_->blocks;
    const auto end = std::ranges::find_if(start, [&](const auto& block) { return block != start.front(); });
    const auto last = static_cast<std::size_t>(end - start.begin()) - 1;
    for (const BlockActivations& mode : modes_) {
      if (mode == start[last]) continue;
      Blocks blocks = start;
      blocks[last] = mode;
      offer(plan(std::move(blocks)));
    }
  }

  const RunConfig& run_;
  const CompileVariant& compile_;
  const MemoryLimits& limits_;
  const Device& device_;
  const std::vector<BlockActivations> modes_;
  std::size_t blocks_ = 0;
  std::vector<Candidate> uniform_;  // by mode
  std::optional<Candidate> best_;   // of those that fit
  Candidate least_;                 // of all, what lacks the least
};

}  // namespace

std::vector<BlockActivations> choose_activations(const RunConfig& run, const CompileVariant& compile,
                                                 const MemoryLimits& limits, const Device& device) {
  HEDDLE_CHECK(run.recompute == Recompute::automatic);
  return ActivationSearch(run, compile, limits, device).run();
}

std::vector<BlockActivations> choose_activations_for_training(const RunConfig& run, const CompileVariant& compile,
                                                              const MemoryLimits& limits) {
  return choose_activations(run, compile, limits, nominal_cpu());
}

}  // namespace heddle
