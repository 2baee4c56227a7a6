#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/hash.h"

namespace heddle {

/// Ids of words seen before, and working memory, for one thread at a time. Bounded: when full it starts afresh.
class WordCache {
 public:
  static constexpr std::size_t longest_word = 255;

  WordCache();

  /// Appends the ids of a word if they are known.
  bool find(std::string_view word, std::uint64_t hash, std::vector<std::int32_t>& ids) const {
    for (std::size_t slot = hash & mask; slots_[slot].length != 0; slot = (slot + 1) & mask) {
      const Slot& entry = slots_[slot];
      if (entry.hash != static_cast<std::uint32_t>(hash >> 32) || entry.length != word.size()) continue;
      if (std::string_view(words_).substr(entry.word, entry.length) != word) continue;
      ids.insert(ids.end(), ids_.begin() + entry.ids, ids_.begin() + entry.ids + entry.count);
      return true;
    }
    return false;
  }
  /// The word is new and not empty; longer ones than longest_word are not kept.
  void add(std::string_view word, std::uint64_t hash, std::span<const std::int32_t> ids);

  /// Working memory of models, kept to save allocations.
  struct Merge {
    std::uint32_t rank, position;
    std::int32_t id;
  };
  struct Symbol {
    std::int32_t id;
    std::int32_t previous, next;  // positions; -1: none
    bool is_alive;
  };
  std::vector<Symbol> symbols;
  std::vector<Merge> queue;
  std::string text;

 private:
  static constexpr std::size_t slot_count = std::size_t{1} << 16, mask = slot_count - 1;
  static constexpr std::size_t most_words = slot_count / 2;
  struct Slot {
    std::uint32_t hash = 0, word = 0, ids = 0;
    std::uint16_t length = 0, count = 0;
  };

  std::vector<Slot> slots_;
  std::string words_;
  std::vector<std::int32_t> ids_;
  std::size_t size_ = 0;
};

/// Caches for as many threads as encode at once.
class WordCachePool {
 public:
  class Lease {
   public:
    explicit Lease(WordCachePool& pool);
    ~Lease();
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    WordCache& operator*() const { return *cache_; }

   private:
    WordCachePool& pool_;
    std::unique_ptr<WordCache> cache_;
  };

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<WordCache>> idle_;
};

}  // namespace heddle
