#include "tiers/block_queue.h"

#include "base/error.h"
#include "base/log.h"

namespace heddle {

std::unique_ptr<BlockQueue> make_block_queue(QueueKind kind, int depth) {
  HEDDLE_CHECK(depth > 0);
  if (kind == QueueKind::threads) return make_thread_queue(depth);
  std::string why;
  if (auto queue = make_io_uring_queue(depth, why)) return queue;
  if (kind == QueueKind::io_uring) fail("io_uring is not available: {}", why);
  note("io_uring is not available ({}); threads transfer what is offloaded to nvme", why);
  return make_thread_queue(depth);
}

}  // namespace heddle
