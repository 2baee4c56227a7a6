#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "formats/json.h"
#include "monitor/chart.h"

namespace heddle {

/// The classes of plan.json and memory.json, in the order they are shown.
inline constexpr std::array<std::string_view, 8> kMemoryClasses = {
    "parameters",  "master_weights", "gradients",     "optimizer_states",
    "activations", "workspace",      "communication", "data"};

/// One tier of the rank that needs most of it, as plan.json or memory.json says.
struct TierBill {
  std::uint64_t peak = 0;
  std::array<std::uint64_t, kMemoryClasses.size()> at_peak{};   ///< bytes by class at the moment of the peak
  std::array<std::uint64_t, kMemoryClasses.size()> greatest{};  ///< greatest bytes of each class at any moment
};

/// A tier as planned and as held.
struct TierComparison {
  std::string tier;
  int ranks = 1;
  TierBill planned, held;
  bool is_equal = false;  ///< of every rank, every byte
};

/// Compares two documents in the format of plan.json tier by tier; tiers without a byte are left out. Throws Error
/// naming what is not in that format.
std::vector<TierComparison> compare_memory(const Json& plan, const Json& memory);

/// Planned over held, by class at the peak.
BarChart memory_chart(const TierComparison& comparison);

}  // namespace heddle
