#pragma once

#include <cstdint>
#include <memory>

#include "base/cores.h"

namespace heddle {

/// Threads that parallel_for uses when called from this thread, on its share of the cores. Set once, before the first
/// parallel_for: the threads are then pinned, or not (cores_to_pin), for good.
void set_threads(int threads, CoreShare share = {});
int threads();

namespace detail {
using Body = void (*)(void* context, std::int64_t index, int thread);
enum class HandOut { by_shares, in_order };
void run_parallel(std::int64_t count, HandOut hand_out, Body body, void* context);

template <typename Function>
void run_parallel(std::int64_t count, HandOut hand_out, Function& body) {
  run_parallel(
      count, hand_out,
      [](void* context, std::int64_t index, int thread) { (*static_cast<Function*>(context))(index, thread); },
      const_cast<void*>(static_cast<const void*>(std::addressof(body))));
}
}  // namespace detail

/// Calls body(index, thread) for each index in [0, count), each once, spread over threads(); thread < threads(). Each
/// thread takes the indices of its share, thread t those from count * t / threads() on, in ascending order, and then
/// what is left of others'. So where kernels cut their operands alike, a thread finds in its cache what it wrote: cores
/// that share no cache take several times as long for what another one wrote. A result must not depend on which thread
/// took an index. No heap allocation. The body must not throw. Nested calls run on the calling thread alone, with
/// thread 0 of that call.
template <typename Function>
void parallel_for(std::int64_t count, Function&& body) {
  detail::run_parallel(count, detail::HandOut::by_shares, body);
}

/// The same with indices handed out in ascending order over all threads: an index may wait for what a lower one does,
/// and the longest go first where they come first.
template <typename Function>
void parallel_for_in_order(std::int64_t count, Function&& body) {
  detail::run_parallel(count, detail::HandOut::in_order, body);
}

}  // namespace heddle
