#pragma once

#include <atomic>

// The sanitizers bring allocators of their own; there nothing is counted.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HEDDLE_COUNTS_ALLOCATIONS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HEDDLE_COUNTS_ALLOCATIONS 0
#endif
#endif
#ifndef HEDDLE_COUNTS_ALLOCATIONS
#define HEDDLE_COUNTS_ALLOCATIONS 1
#endif

namespace heddle::endtoend {

/// Calls of operator new so far, by all threads of this program.
extern std::atomic<long> allocations;

}  // namespace heddle::endtoend
