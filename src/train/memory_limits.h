#pragma once

#include <cstdint>
#include <string>

#include "config/run_config.h"
#include "program/passes/passes.h"

namespace heddle {

/// Bytes that a rank may plan.
struct MemoryLimits {
  std::uint64_t device = 0;    ///< of the device tier
  std::uint64_t total = 0;     ///< of the device and host tiers together
  std::string total_key = {};  ///< the key of the run file that sets `total`; empty: what the machine has left

  /// Bytes that the plan lacks; 0 or less: it fits.
  std::int64_t excess(std::uint64_t device_bytes, std::uint64_t host_bytes) const;
  std::int64_t excess(const MemoryPlan& plan) const { return excess(plan.device.peak, plan.host.peak); }
};

inline constexpr std::uint64_t kUnlimitedMemory = INT64_MAX;

/// device_memory, and the less of memory_budget and `available` bytes, which are the rank's own.
MemoryLimits memory_limits(const RunConfig& run, std::uint64_t available);

/// Throws Error saying how many bytes are missing, and what needs less.
void require_fit(const MemoryPlan& plan, const MemoryLimits& limits, const RunConfig& run);

}  // namespace heddle
