#include "data/tokenizer/word_cache.h"

#include <utility>

namespace heddle {

WordCache::WordCache() : slots_(slot_count) {}

void WordCache::add(std::string_view word, std::uint64_t hash, std::span<const std::int32_t> ids) {
  if (word.size() > longest_word) return;
  if (size_ == most_words) {
    slots_.assign(slot_count, Slot{});
    words_.clear();
    ids_.clear();
    size_ = 0;
  }
  std::size_t slot = hash & mask;
  while (slots_[slot].length != 0) slot = (slot + 1) & mask;
  Slot& entry = slots_[slot];
  entry.hash = static_cast<std::uint32_t>(hash >> 32);
  entry.word = static_cast<std::uint32_t>(words_.size());
  entry.ids = static_cast<std::uint32_t>(ids_.size());
  entry.length = static_cast<std::uint16_t>(word.size());
  entry.count = static_cast<std::uint16_t>(ids.size());
  words_ += word;
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  ++size_;
}

WordCachePool::Lease::Lease(WordCachePool& pool) : pool_(pool) {
  {
    const std::lock_guard lock(pool_.mutex_);
    if (!pool_.idle_.empty()) {
      cache_ = std::move(pool_.idle_.back());
      pool_.idle_.pop_back();
    }
  }
  if (cache_ == nullptr) cache_ = std::make_unique<WordCache>();
}

WordCachePool::Lease::~Lease() {
  const std::lock_guard lock(pool_.mutex_);
  pool_.idle_.push_back(std::move(cache_));
}

}  // namespace heddle
