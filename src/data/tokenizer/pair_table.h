#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "data/tokenizer/hash.h"

namespace heddle {

/// A hash table from pairs of ids to a rank and an id: which merge a pair of symbols has and what it becomes; which
/// node a byte leads to.
class PairTable {
 public:
  struct Entry {
    std::uint32_t rank;
    std::int32_t id;
  };

  explicit PairTable(std::size_t pairs = 0);
  /// A pair that is there already takes the new rank.
  void set(std::int32_t left, std::int32_t right, Entry entry);
  const Entry* find(std::int32_t left, std::int32_t right) const {
    const std::uint64_t key = key_of(left, right);
    for (std::size_t slot = hash_pair(key) & mask_; slots_[slot].key != empty; slot = (slot + 1) & mask_) {
      if (slots_[slot].key == key) return &slots_[slot].entry;
    }
    return nullptr;
  }

 private:
  static constexpr std::uint64_t empty = UINT64_MAX;  // no pair: ids are not negative
  struct Slot {
    std::uint64_t key = empty;
    Entry entry{};
  };
  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
  }

  void grow(std::size_t slots);

  std::vector<Slot> slots_;
  std::size_t mask_ = 0, size_ = 0;
};

}  // namespace heddle
