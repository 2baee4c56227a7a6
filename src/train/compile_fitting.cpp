#include "train/compile_fitting.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "tiers/available_memory.h"
#include "train/residency.h"

namespace heddle {
namespace {

std::vector<std::uint64_t> of_all_ranks(std::uint64_t value, std::string_view what, Communicator& communicator) {
  std::vector<std::uint64_t> values(static_cast<std::size_t>(communicator.size()));
  communicator.all_gather(std::as_bytes(std::span(&value, 1)), std::as_writable_bytes(std::span(values)), what);
  return values;
}

}  // namespace

CompiledRun compile_fitting(RunConfig& run, const ModelSource& model, const WeightFiles* weights, const RunData& data,
                            const ActivationChooser& choose, Communicator& communicator) {
  const std::uint64_t available = available_memory() / static_cast<std::uint64_t>(communicator.ranks_on_host());
  const MemoryLimits limits =
      memory_limits(run, std::ranges::min(of_all_ranks(available, "the memory there is", communicator)));
  const auto compile = [&](const RunConfig& variant) {
    CompiledRun compiled = compile_run(variant, model, weights, data, communicator.rank());
    compiled.plan.add_staging(communicator.staging_bytes());
    return compiled;
  };
  // Ranks with other numbers of threads have other plans: all decide by the greatest peaks.
  const auto compile_for_all = [&](const RunConfig& variant) {
    CompiledRun compiled = compile(variant);
    for (Bill* bill : {&compiled.plan.device, &compiled.plan.host})
      bill->peak = std::ranges::max(of_all_ranks(bill->peak, "what a plan needs", communicator));
    return compiled;
  };
  if (run.recompute == Recompute::automatic) {
    HEDDLE_CHECK(choose);
    run.block_activations = choose(run, compile_for_all, limits);
  }
  choose_residency(run, compile_for_all, limits);
  CompiledRun compiled = compile(run);
  require_fit(compiled.plan, limits, run);
  for (const std::string& line : decisions(compiled)) note("{}", line);
  return compiled;
}

}  // namespace heddle
