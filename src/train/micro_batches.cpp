#include "train/micro_batches.h"

namespace heddle {

double MicroBatches::gather_losses() {
  const std::size_t rounds = losses_.size(), ranks = static_cast<std::size_t>(communicator_.size());
  all_.resize(rounds * ranks);
  communicator_.all_gather(std::as_bytes(std::span(losses_)), std::as_writable_bytes(std::span(all_)), "losses");
  double sum = 0.0;
  for (std::size_t round = 0; round < rounds; ++round) {
    for (std::size_t rank = 0; rank < ranks; ++rank) sum += all_[rank * rounds + round];
  }
  losses_.clear();
  return sum;
}

}  // namespace heddle
