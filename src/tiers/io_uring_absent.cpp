#include "tiers/block_queue.h"

namespace heddle {

std::unique_ptr<BlockQueue> make_io_uring_queue(int, std::string& why) {
  why = "this build is without liburing";
  return nullptr;
}

}  // namespace heddle
