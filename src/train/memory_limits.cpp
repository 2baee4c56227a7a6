#include "train/memory_limits.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace heddle {
namespace {

std::int64_t difference(std::uint64_t need, std::uint64_t there) {
  return static_cast<std::int64_t>(need) - static_cast<std::int64_t>(there);
}

/// What the run could still choose to need less.
std::string advice(const RunConfig& run) {
  std::string text = "a smaller per_device_train_batch_size or max_length needs less";
  if (run.recompute != Recompute::full && run.recompute != Recompute::automatic)
    text += ", and so does recompute: full";
  return text;
}

}  // namespace

std::int64_t MemoryLimits::excess(std::uint64_t device_bytes, std::uint64_t host_bytes) const {
  return std::max(difference(device_bytes, device), difference(device_bytes + host_bytes, total));
}

MemoryLimits memory_limits(const RunConfig& run, std::uint64_t available) {
  MemoryLimits limits;
  limits.total = std::min(available, run.memory_budget.value_or(available));
  if (run.memory_budget && limits.total == *run.memory_budget) limits.total_key = "memory_budget";
  limits.device = std::min(limits.total, run.device_memory.value_or(limits.total));
  return limits;
}

void require_fit(const MemoryPlan& plan, const MemoryLimits& limits, const RunConfig& run) {
  if (limits.excess(plan) <= 0) return;
  const std::string who = run.ranks > 1 ? "each rank" : "the run";
  const std::string least = run.recompute == Recompute::automatic ? " at least (recompute: auto)" : "";
  if (plan.device.peak > limits.device && limits.device < limits.total) {
    fail("{} needs {} on device{}, {} are there (device_memory): {} bytes are missing; {}{}", who,
         format_bytes(plan.device.peak), least, format_bytes(limits.device), plan.device.peak - limits.device,
         advice(run), run.offload_optimizer == OffloadDevice::none ? ", and offload_optimizer: cpu" : "");
  }
  const std::string host = plan.host.peak > 0 ? fmt::format(" and {} on host", format_bytes(plan.host.peak)) : "";
  fail("{} needs {} on device{}{}, {} are there ({}): {} bytes are missing; {}{}", who, format_bytes(plan.device.peak),
       host, least, format_bytes(limits.total), limits.total_key.empty() ? "available memory" : limits.total_key,
       plan.device.peak + plan.host.peak - limits.total, advice(run),
       run.offload_gradients == OffloadDevice::nvme ? "" : ", and offload_optimizer and offload_gradients: nvme");
}

}  // namespace heddle
