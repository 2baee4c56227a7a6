#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tiers/block_queue.h"
#include "tiers/swap_file.h"

namespace heddle {

/// How transfers are cut and queued; the names are those of DeepSpeed's `aio` section, and the defaults too.
struct TransferOptions {
  std::size_t block_size = std::size_t{1} << 20;  ///< most bytes of one call
  int queue_depth = 8;                            ///< calls under way at once
  bool single_submit = false;                     ///< each call handed to the kernel alone, not all that there are
  bool overlap_events = true;                     ///< new calls start as old ones end; false: once all have ended
  QueueKind queue = QueueKind::automatic;
};

/// Transfers between memory and a swap file, many under way at once. They come out as if each had ended before the next
/// began: one that touches what another under way writes, in memory or in the file, waits for it. For one thread at a
/// time; nothing here allocates memory after construction.
class SwapTransfers {
 public:
  SwapTransfers(const SwapFile& file, const TransferOptions& options);
  /// With a queue of one's own.
  SwapTransfers(const SwapFile& file, const TransferOptions& options, std::unique_ptr<BlockQueue> queue);
  /// Waits for all that is under way, whatever becomes of it.
  ~SwapTransfers();
  SwapTransfers(const SwapTransfers&) = delete;
  SwapTransfers& operator=(const SwapTransfers&) = delete;

  /// Numbers what is started from here on; numbers grow.
  void begin(std::uint64_t number) { number_ = number; }
  /// Start a transfer and return when the queue has taken the last of it. Throw Error naming the folder, the offset,
  /// the bytes and why, of this transfer or of another under way.
  void read(std::uint64_t offset, std::span<std::byte> target);
  void write(std::uint64_t offset, std::span<const std::byte> source);
  /// A copy within memory, in order with what is under way.
  void copy(const std::byte* from, std::byte* to, std::size_t bytes);

  /// The least number of which something is under way; that of begin() + 1 if nothing is.
  std::uint64_t first_under_way() const;
  bool is_idle() const { return under_way_ == 0; }
  /// Waits until one call of those under way has ended. Throws as read() and write().
  void advance();
  void finish();
  /// As finish(), without a word about failures.
  void abandon() noexcept;

  std::string_view queue_name() const { return queue_ ? queue_->name() : "none"; }

 private:
  struct Slot {
    bool is_free = true;
    std::uint64_t number = 0;
    Block block;  // what is left of it
  };

  void start(bool is_write, std::uint64_t offset, std::byte* memory, std::size_t bytes);
  /// Returns when nothing under way conflicts with a transfer between these; 0 bytes of the file: within memory.
  void wait_for_conflicts(bool writes_file, std::uint64_t offset, std::size_t file_bytes, const std::byte* read_memory,
                          const std::byte* written_memory, std::size_t bytes);
  std::uint32_t take_slot();
  void submit(const Slot& slot);
  void flush();
  /// What became of a call; starts the rest of a short one.
  void settle(const Completion& completion);

  const SwapFile& file_;
  TransferOptions options_;
  std::unique_ptr<BlockQueue> queue_;  // null for a file of 0 bytes
  std::vector<Slot> slots_;            // the tag is the index
  std::vector<Block> pending_;         // taken, and not yet handed over
  std::size_t under_way_ = 0;
  std::uint64_t number_ = 0;
};

}  // namespace heddle
