#include "data/tokenizer/pair_table.h"

#include <utility>

namespace heddle {

PairTable::PairTable(std::size_t pairs) { grow(2 * pairs); }

void PairTable::grow(std::size_t slots) {
  std::size_t size = 16;
  while (size < slots) size *= 2;
  const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(size));
  mask_ = size - 1;
  size_ = 0;
  for (const Slot& slot : old) {
    if (slot.key != empty)
      set(static_cast<std::int32_t>(slot.key >> 32), static_cast<std::int32_t>(slot.key), slot.entry);
  }
}

void PairTable::set(std::int32_t left, std::int32_t right, Entry entry) {
  if (2 * (size_ + 1) > slots_.size()) grow(2 * slots_.size());
  const std::uint64_t key = key_of(left, right);
  std::size_t slot = hash_pair(key) & mask_;
  while (slots_[slot].key != empty && slots_[slot].key != key) slot = (slot + 1) & mask_;
  if (slots_[slot].key == empty) ++size_;
  slots_[slot] = {key, entry};
}

}  // namespace heddle
