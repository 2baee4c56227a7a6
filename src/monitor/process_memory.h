#pragma once

#include <cstdint>

namespace heddle {

/// Bytes of this process in memory that belong to no file (RssAnon of /proc/self/status): arenas, and what allocators
/// and libraries hold. Weights and data seen through mappings are not among them. 0 where the system does not say.
std::uint64_t anonymous_bytes();

/// What the process holds, against what it planned.
class MemoryWatch {
 public:
  /// `baseline`: anonymous_bytes() before any of the planned memory was touched.
  MemoryWatch(std::uint64_t planned, std::uint64_t baseline) : planned_(planned), baseline_(baseline) {}

  /// Bytes beyond the plan, where these are more than 2% of it and more than 32 MiB; else 0.
  std::uint64_t excess(std::uint64_t held) const;

  /// Whether an excess is to be said: the first, and then one that has doubled.
  bool is_news(std::uint64_t excess);

 private:
  std::uint64_t planned_, baseline_;
  std::uint64_t said_ = 0;
};

}  // namespace heddle
