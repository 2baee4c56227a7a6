#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "ops/kernel.h"
#include "tiers/swap_file.h"

namespace heddle {

/// One tensor of a transfer. Memory is null at the end that lies in the swap file.
struct TransferPiece {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::uint64_t offset = 0;  ///< in the swap file
  std::size_t bytes = 0;
};

/// An instruction that moves data, with its operands in memory.
struct BoundMovement {
  std::string what;                        ///< names it in errors
  std::vector<GatherPiece> gathered;       ///< of an all_gather
  std::vector<ScatterPiece> reduced;       ///< of a reduce_scatter
  std::vector<TransferPiece> transferred;  ///< of a transfer
  Order order = Order::ordered;
  Accumulate accumulate = Accumulate::overwrite;
  bool takes_all_ranks = false;  ///< also those without rows in this round
};

void communicate(const BoundMovement& movement, const Scalars& scalars, Communicator& communicator);
void transfer(const BoundMovement& movement, SwapFile& swap);

/// The communication or transfer queue of one rank: movements run on a thread of their own, one after another, while
/// the rank computes. While none is under way, the owner may use what they use itself. Submitting allocates nothing.
class MovementQueue {
 public:
  using Move = std::function<void(const BoundMovement&, const Scalars&)>;
  explicit MovementQueue(Move move);
  ~MovementQueue();
  MovementQueue(const MovementQueue&) = delete;
  MovementQueue& operator=(const MovementQueue&) = delete;

  /// Starts a movement and returns its ticket. Its operands must not be touched until wait(ticket).
  std::uint64_t start(const BoundMovement& movement, const Scalars& scalars);
  /// Returns when the movement and all before it are done; throws what the first that failed threw.
  void wait(std::uint64_t ticket);

 private:
  struct Entry {
    const BoundMovement* movement = nullptr;
    Scalars scalars;
  };
  void serve();

  Move move_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Entry> entries_;  // a ring: ticket t is entry t % size
  std::uint64_t started_ = 0, done_ = 0;
  bool stops_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace heddle
