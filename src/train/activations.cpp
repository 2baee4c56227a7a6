#include "train/activations.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"

namespace heddle {
namespace {

constexpr std::array kModes = {RecomputeMode::none, RecomputeMode::selective, RecomputeMode::full};
constexpr std::array kNames = {"none", "selective", "full"};

}  // namespace

BlockActivations activations_of(const RunConfig& run, std::size_t block) {
  if (run.recompute == Recompute::automatic) fail("recompute is auto, which nothing has decided here");
  const bool is_recomputed = block % static_cast<std::size_t>(run.recompute_every) == 0;
  return {is_recomputed ? run.recompute : Recompute::none, run.offload_activations != OffloadDevice::none};
}

std::string activations_key(const RunConfig& run) {
  if (run.recompute == Recompute::automatic) return "recompute: auto";
  return run.offload_activations == OffloadDevice::nvme ? "offload_activations: nvme" : "offload_activations: cpu";
}

bool is_block(const std::string& unit) { return unit.starts_with("block"); }

UnitActivations unit_activations(const RunConfig& run, const StepProgram& program) {
  const auto blocks = static_cast<std::size_t>(std::ranges::count_if(program.units, is_block));
  HEDDLE_CHECK(run.block_activations.empty() || run.block_activations.size() == blocks);
  UnitActivations units;
  std::size_t block = 0;
  for (const std::string& unit : program.units) {
    const std::size_t index = is_block(unit) ? block++ : 0;
    const BlockActivations chosen =
        run.block_activations.empty() ? activations_of(run, index) : run.block_activations[index];
    units.recompute.push_back(kModes[static_cast<std::size_t>(chosen.recompute)]);
    units.stay.push_back(!chosen.is_offloaded);
  }
  return units;
}

std::string activations_name(const BlockActivations& activations) {
  return fmt::format("{}{}", kNames[static_cast<std::size_t>(activations.recompute)],
                     activations.is_offloaded ? ", offloaded" : "");
}

std::string activations_text(const std::vector<BlockActivations>& blocks) {
  std::string text;
  for (std::size_t first = 0; first < blocks.size();) {
    std::size_t end = first;
    while (end < blocks.size() && blocks[end] == blocks[first]) ++end;
    text += fmt::format("{}{} {}", first == 0 ? "blocks " : "; ",
                        end - first == 1 ? fmt::format("{}", first) : fmt::format("{}-{}", first, end - 1),
                        activations_name(blocks[first]));
    first = end;
  }
  return text;
}

Json activations_document(const std::vector<BlockActivations>& blocks) {
  Json names = Json::array();
  for (const BlockActivations& block : blocks) names.push_back(activations_name(block));
  return names;
}

}  // namespace heddle
