#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "ops/kernel.h"
#include "tiers/swap_transfers.h"

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

/// Makes the movements of one queue happen, on its thread. They may overlap; to whoever waits they end in order.
class Mover {
 public:
  virtual ~Mover() = default;
  virtual void start(const BoundMovement& movement, const Scalars& scalars) = 0;
  /// How many of the movements started last are not known to be done, with all before them.
  virtual std::uint64_t unfinished() const { return 0; }
  /// Waits for a part of those.
  virtual void advance() {}
  /// After a failure: returns when nothing touches their operands any more.
  virtual void abandon() noexcept {}
};

/// Collectives, one after another.
std::unique_ptr<Mover> make_collective_mover(Communicator& communicator);
/// Transfers between memory and the swap file, many under way at once, and copies within memory.
std::unique_ptr<Mover> make_transfer_mover(const SwapFile& swap, const TransferOptions& options);

/// The communication or transfer queue of one rank: movements run on a thread of their own, in order, while the rank
/// computes. While none is under way, the owner may use what they use itself. Submitting allocates nothing.
class MovementQueue {
 public:
  explicit MovementQueue(std::unique_ptr<Mover> mover);
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
  /// Starts `entry`, or waits for a part of what is under way; returns how many are then unfinished.
  std::uint64_t move(const Entry* entry);

  std::unique_ptr<Mover> mover_;
  bool has_failed_ = false;  // the thread's own
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Entry> entries_;                         // a ring: ticket t is entry t % size
  std::uint64_t started_ = 0, moving_ = 0, done_ = 0;  // asked for, given to the mover, done
  bool stops_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace heddle
