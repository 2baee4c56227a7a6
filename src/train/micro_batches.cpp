#include "train/micro_batches.h"

#include <type_traits>

namespace heddle {

static_assert(std::is_trivially_copyable_v<LossSums>, "ranks exchange it as it lies in memory");

LossSums LossSums::of(const Executor& executor) {
  LossSums sums = *executor.persistent(labels::loss).as<double>();
  if (executor.has_persistent(labels::preference_sums)) {
    const auto* values = executor.persistent(labels::preference_sums).as<double>();
    std::copy_n(values, kPreferenceSums, sums.preference.begin());
  }
  return sums;
}

void LossSums::add(const LossSums& other) {
  loss += other.loss;
  for (std::size_t i = 0; i < preference.size(); ++i) preference[i] += other.preference[i];
}

LossSums MicroBatches::gather_losses() {
  const std::size_t rounds = losses_.size(), ranks = static_cast<std::size_t>(communicator_.size());
  all_.resize(rounds * ranks);
  communicator_.all_gather(std::as_bytes(std::span(losses_)), std::as_writable_bytes(std::span(all_)), "losses");
  LossSums sum;
  for (std::size_t round = 0; round < rounds; ++round) {
    for (std::size_t rank = 0; rank < ranks; ++rank) sum.add(all_[rank * rounds + round]);
  }
  losses_.clear();
  return sum;
}

}  // namespace heddle
