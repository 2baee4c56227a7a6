#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "data/tokenizer/pair_table.h"
#include "data/tokenizer/word_cache.h"

namespace heddle {

/// Appends a symbol to the list of a word.
inline void add_symbol(std::vector<WordCache::Symbol>& symbols, std::int32_t id) {
  const auto position = static_cast<std::int32_t>(symbols.size());
  if (!symbols.empty()) symbols.back().next = position;
  symbols.push_back({id, position - 1, -1, true});
}

/// Merges the adjacent pair of the lowest rank, leftmost first, until none is left: a queue of possible merges by rank,
/// then position. An entry is out of date when the pair at its position would become another token by now; one that
/// would become the same token by another merge counts, as in Hugging Face's library and in SentencePiece.
/// `on_merge(left, right, id)` hears of each merge that is possible, whether or not it is made.
template <typename OnMerge>
void merge_symbols(const PairTable& merges, WordCache& cache, OnMerge on_merge) {
  std::vector<WordCache::Symbol>& symbols = cache.symbols;
  std::vector<WordCache::Merge>& queue = cache.queue;
  const auto comes_later = [](const WordCache::Merge& a, const WordCache::Merge& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
  };
  const auto symbol = [&symbols](std::int32_t position) -> WordCache::Symbol& {
    return symbols[static_cast<std::size_t>(position)];
  };
  const auto propose = [&](std::int32_t left, std::int32_t right) {
    const PairTable::Entry* merge = merges.find(symbol(left).id, symbol(right).id);
    if (merge == nullptr) return false;
    queue.push_back({merge->rank, static_cast<std::uint32_t>(left), merge->id});
    on_merge(symbol(left).id, symbol(right).id, merge->id);
    return true;
  };
  const auto push = [&](std::int32_t left, std::int32_t right) {
    if (propose(left, right)) std::push_heap(queue.begin(), queue.end(), comes_later);
  };

  queue.clear();
  for (std::int32_t i = 0; i + 1 < static_cast<std::int32_t>(symbols.size()); ++i) propose(i, i + 1);
  std::make_heap(queue.begin(), queue.end(), comes_later);
  while (!queue.empty()) {
    const WordCache::Merge top = queue.front();
    std::pop_heap(queue.begin(), queue.end(), comes_later);
    queue.pop_back();
    const auto position = static_cast<std::int32_t>(top.position);
    WordCache::Symbol& left = symbol(position);
    if (!left.is_alive || left.next < 0) continue;
    WordCache::Symbol& right = symbol(left.next);
    const PairTable::Entry* merge = merges.find(left.id, right.id);
    if (merge == nullptr || merge->id != top.id) continue;
    left.id = top.id;
    left.next = right.next;
    right.is_alive = false;
    if (left.next >= 0) symbol(left.next).previous = position;
    if (left.previous >= 0) push(left.previous, position);
    if (left.next >= 0) push(position, left.next);
  }
}

}  // namespace heddle
