#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

#include "base/cores.h"

namespace heddle {

/// Threads that parallel_for uses when called from this thread, on its share of the cores. Set once, before the first
/// parallel_for: the threads are then pinned, or not (cores_to_pin), for good.
void set_threads(int threads, CoreShare share = {});
int threads();

namespace detail {
using Body = void (*)(void* context, std::int64_t index, int thread);
void run_parallel(std::int64_t count, Body body, void* context);
}  // namespace detail

/// Calls body(index, thread) for each index in [0, count), each once, spread over threads(); thread < threads().
/// Indices are handed out dynamically: a result must not depend on which thread took an index. They are handed out in
/// ascending order, so an index may wait for what a lower one does. No heap allocation. The body must not throw.
/// Nested calls run on the calling thread alone, with thread 0 of that call.
template <typename Function>
void parallel_for(std::int64_t count, Function&& body) {
  using Plain = std::remove_reference_t<Function>;
  detail::run_parallel(
      count, [](void* context, std::int64_t index, int thread) { (*static_cast<Plain*>(context))(index, thread); },
      const_cast<void*>(static_cast<const void*>(std::addressof(body))));
}

}  // namespace heddle
