#include "monitor/memory_bill.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/text.h"

namespace heddle {
namespace {

const Json& member(const Json& object, std::string_view key, std::string_view where) {
  const auto found = object.find(key);
  if (found == object.end()) fail("{}: {} is missing", where, key);
  return *found;
}

std::array<std::uint64_t, kMemoryClasses.size()> by_class(const Json& object) {
  std::array<std::uint64_t, kMemoryClasses.size()> bytes{};
  for (std::size_t i = 0; i < kMemoryClasses.size(); ++i) {
    if (const auto found = object.find(kMemoryClasses[i]); found != object.end())
      bytes[i] = found->get<std::uint64_t>();
  }
  return bytes;
}

/// The bill of the rank with the greatest peak in `tier`.
TierBill greatest_of_ranks(const Json& document, const std::string& tier, std::string_view where) {
  TierBill bill;
  for (const auto& rank : member(document, "ranks", where)) {
    const auto& tiers = member(rank, "tiers", where);
    const auto found = tiers.find(tier);
    if (found == tiers.end()) continue;
    const auto peak = member(*found, "peak", where).get<std::uint64_t>();
    if (peak <= bill.peak) continue;
    bill = {peak, by_class(member(*found, "at_peak", where)), by_class(member(*found, "classes", where))};
  }
  return bill;
}

bool is_equal_in(const std::string& tier, const Json& plan, const Json& memory) {
  if (plan["ranks"].size() != memory["ranks"].size()) return false;
  for (std::size_t rank = 0; rank < plan["ranks"].size(); ++rank) {
    const auto& planned = plan["ranks"][rank]["tiers"];
    const auto& held = memory["ranks"][rank]["tiers"];
    if (planned.value(tier, Json()) != held.value(tier, Json())) return false;
  }
  return true;
}

}  // namespace

std::vector<TierComparison> compare_memory(const Json& plan, const Json& memory) {
  std::vector<TierComparison> comparisons;
  for (const std::string tier : {"device", "host", "nvme"}) {
    TierComparison comparison;
    comparison.tier = tier;
    comparison.planned = greatest_of_ranks(plan, tier, "plan.json");
    comparison.held = greatest_of_ranks(memory, tier, "memory.json");
    if (comparison.planned.peak == 0 && comparison.held.peak == 0) continue;
    comparison.ranks = static_cast<int>(plan["ranks"].size());
    comparison.is_equal = is_equal_in(tier, plan, memory);
    comparisons.push_back(std::move(comparison));
  }
  return comparisons;
}

BarChart memory_chart(const TierComparison& comparison) {
  BarChart chart;
  chart.format = [](double bytes) { return format_bytes(static_cast<std::uint64_t>(bytes)); };
  for (const auto& [label, bill] : {std::pair{"planned", &comparison.planned}, std::pair{"held", &comparison.held}}) {
    Bar bar{label, {}};
    for (std::size_t i = 0; i < kMemoryClasses.size(); ++i) {
      bar.parts.push_back({std::string(kMemoryClasses[i]), static_cast<double>(bill->at_peak[i]), static_cast<int>(i)});
    }
    chart.bars.push_back(std::move(bar));
  }
  return chart;
}

}  // namespace heddle
