#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "data/tokenizer/pair_table.h"

namespace heddle {

/// Texts with a value each, walked byte by byte.
class ByteTrie {
 public:
  static constexpr std::int32_t root = 0, none = -1;

  /// A text that is there already takes the new value.
  void add(std::string_view text, std::int32_t value) {
    std::int32_t node = root;
    for (const char byte : text) {
      const std::int32_t next = step(node, byte);
      node = next == none ? extend(node, byte) : next;
    }
    values_[static_cast<std::size_t>(node)] = value;
  }

  /// The node that `byte` leads to, or none.
  std::int32_t step(std::int32_t node, char byte) const {
    const PairTable::Entry* child = children_.find(node, static_cast<unsigned char>(byte));
    return child == nullptr ? none : child->id;
  }
  /// Of the text that ends at the node, or none.
  std::int32_t value(std::int32_t node) const { return values_[static_cast<std::size_t>(node)]; }

 private:
  std::int32_t extend(std::int32_t node, char byte) {
    const auto fresh = static_cast<std::int32_t>(values_.size());
    children_.set(node, static_cast<unsigned char>(byte), {0, fresh});
    values_.push_back(none);
    return fresh;
  }

  PairTable children_;
  std::vector<std::int32_t> values_ = {none};
};

}  // namespace heddle
