#include "counting_allocator.h"

#include <cstdlib>
#include <new>

namespace heddle::endtoend {
std::atomic<long> allocations{0};
}

#if HEDDLE_COUNTS_ALLOCATIONS
// In a file of their own: where the compiler sees both sides, it takes malloc and delete for a mistake.
void* operator new(std::size_t size) {
  ++heddle::endtoend::allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#endif
