#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/json_entry.h"

namespace heddle {

/// Tokens and their ids, both ways. Ids may leave gaps.
class Vocabulary {
 public:
  static constexpr std::int32_t none = -1;

  Vocabulary() = default;
  /// A map {token: id}; ids must be distinct and from 0 to 2^24 - 1.
  explicit Vocabulary(const JsonEntry& map);

  /// Ids must be new and not negative. A token given twice has the later id, as in Hugging Face's library.
  void add(std::string_view token, std::int32_t id);

  /// `none` for an unknown token.
  std::int32_t find(std::string_view token) const;
  bool contains(std::int32_t id) const { return id >= 0 && id < end() && spans_[index(id)].length != absent; }
  /// The token of an id that contains() holds for.
  std::string_view token(std::int32_t id) const {
    return std::string_view(text_).substr(spans_[index(id)].begin, spans_[index(id)].length);
  }
  std::int32_t size() const { return size_; }
  /// Greatest id + 1.
  std::int32_t end() const { return static_cast<std::int32_t>(spans_.size()); }

 private:
  static constexpr std::uint32_t absent = UINT32_MAX;
  struct Span {
    std::uint32_t begin = 0, length = absent;
  };
  struct Slot {
    std::uint32_t hash = 0;
    std::int32_t id = none;
  };

  static std::size_t index(std::int32_t id) { return static_cast<std::size_t>(id); }
  void grow(std::size_t slots);
  void insert(std::uint64_t hash, std::int32_t id);

  std::string text_;  // all tokens end to end
  std::vector<Span> spans_;
  std::vector<Slot> slots_;  // open addressing; the size is a power of two
  std::int32_t size_ = 0;
};

}  // namespace heddle
