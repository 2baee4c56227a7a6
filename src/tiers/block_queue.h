#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace heddle {

/// One call of the kernel between memory and a file.
struct Block {
  int file = -1;
  bool is_write = false;
  std::byte* memory = nullptr;
  std::size_t bytes = 0;
  std::uint64_t offset = 0;
  std::uint32_t tag = 0;  ///< comes back with the completion
};

struct Completion {
  std::uint32_t tag = 0;
  std::int64_t result = 0;  ///< bytes, which may be fewer than were asked for, or -errno
};

/// Blocks under way between memory and files. For one thread at a time; completions come in any order. Whoever destroys
/// it has taken all of them. Neither call allocates memory.
class BlockQueue {
 public:
  virtual ~BlockQueue() = default;
  /// Hands over blocks, in one call of the kernel where there is such a call. No more than the depth may be under way.
  virtual void submit(std::span<const Block> blocks) = 0;
  /// Waits for one.
  virtual Completion wait() = 0;
  virtual std::string_view name() const = 0;
};

/// Who moves the blocks: the kernel's own queue, or a pool of threads with a blocking call each.
enum class QueueKind { automatic, io_uring, threads };

/// Null where the kernel, a sandbox or this build has no io_uring; `why` then says which. Linux 5.6 is enough.
std::unique_ptr<BlockQueue> make_io_uring_queue(int depth, std::string& why);
/// At most 16 threads, however deep the queue.
std::unique_ptr<BlockQueue> make_thread_queue(int depth);
/// automatic: io_uring, else threads and a note that says why. Throws Error where io_uring is asked for and not there.
std::unique_ptr<BlockQueue> make_block_queue(QueueKind kind, int depth);

}  // namespace heddle
