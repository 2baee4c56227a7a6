#include <liburing.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "tiers/block_queue.h"

namespace heddle {
namespace {

class IoUringQueue : public BlockQueue {
 public:
  /// Takes over a ring that is set up.
  explicit IoUringQueue(const io_uring& ring) : ring_(ring) {}
  ~IoUringQueue() override { io_uring_queue_exit(&ring_); }
  IoUringQueue(const IoUringQueue&) = delete;
  IoUringQueue& operator=(const IoUringQueue&) = delete;

  void submit(std::span<const Block> blocks) override {
    for (const Block& block : blocks) {
      io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
      HEDDLE_CHECK(entry != nullptr);
      const auto bytes = static_cast<unsigned>(block.bytes);
      if (block.is_write) {
        io_uring_prep_write(entry, block.file, block.memory, bytes, block.offset);
      } else {
        io_uring_prep_read(entry, block.file, block.memory, bytes, block.offset);
      }
      io_uring_sqe_set_data64(entry, block.tag);
    }
    while (io_uring_sq_ready(&ring_) > 0) {
      const int submitted = io_uring_submit(&ring_);
      if (submitted < 0 && submitted != -EINTR && submitted != -EAGAIN)
        fail("io_uring takes no transfers: {}", std::strerror(-submitted));
    }
  }

  Completion wait() override {
    io_uring_cqe* entry = nullptr;
    int failed = -EINTR;
    while (failed == -EINTR) failed = io_uring_wait_cqe(&ring_, &entry);
    if (failed != 0) fail("io_uring gives no completions: {}", std::strerror(-failed));
    const Completion completion{static_cast<std::uint32_t>(io_uring_cqe_get_data64(entry)), entry->res};
    io_uring_cqe_seen(&ring_, entry);
    return completion;
  }

  std::string_view name() const override { return "io_uring"; }

 private:
  io_uring ring_;
};

}  // namespace

std::unique_ptr<BlockQueue> make_io_uring_queue(int depth, std::string& why) {
  io_uring ring{};
  if (const int failed = io_uring_queue_init(static_cast<unsigned>(depth), &ring, 0); failed < 0) {
    why = std::strerror(-failed);
    return nullptr;
  }
  io_uring_probe* const probe = io_uring_get_probe_ring(&ring);
  const bool has_calls = probe != nullptr && io_uring_opcode_supported(probe, IORING_OP_READ) != 0 &&
                         io_uring_opcode_supported(probe, IORING_OP_WRITE) != 0;
  if (probe != nullptr) io_uring_free_probe(probe);
  if (has_calls) return std::make_unique<IoUringQueue>(ring);
  io_uring_queue_exit(&ring);
  why = "the kernel is older than 5.6";
  return nullptr;
}

}  // namespace heddle
