#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "data/tokenizer.h"

namespace heddle {

/// Which ids are special tokens: those that decode() leaves out. Found out as they are asked for, by any thread.
class SpecialIds {
 public:
  /// `tokenizer` must outlive it.
  explicit SpecialIds(const Tokenizer& tokenizer);
  bool contains(std::int32_t id) const;
  const Tokenizer& tokenizer() const { return *tokenizer_; }

 private:
  enum class Known : std::uint8_t { unknown, plain, special };
  const Tokenizer* tokenizer_;
  mutable std::vector<std::atomic<Known>> known_;  // by id
};

/// Where bytes of a text lie among its tokens. Tokenizers do not say it; but special tokens stand in the text as they
/// are spelt, and a part of the text between two of them can be encoded up to a given byte and compared.
class TokenAlignment {
 public:
  /// `ids` are those of `text` without added special tokens; both must outlive it.
  TokenAlignment(const SpecialIds& special, std::string_view text, std::span<const std::int32_t> ids);

  /// The first token that holds a byte from `byte` on; the number of tokens where there is none. A token is taken to
  /// lie before `byte` where the text up to there has it too: one that would be another there holds what follows.
  std::size_t token_from(std::size_t byte) const { return locate(byte).first; }
  /// One past the last token that holds a byte before `byte`.
  std::size_t token_until(std::size_t byte) const { return locate(byte).second; }
  /// Where the first special token ends that begins at `byte` or behind it, if any.
  std::optional<std::size_t> end_of_special(std::size_t byte) const;

 private:
  struct Anchor {
    std::size_t token, begin, end;  // a special token and its bytes
  };
  std::pair<std::size_t, std::size_t> locate(std::size_t byte) const;

  const SpecialIds* special_;
  std::string_view text_;
  std::span<const std::int32_t> ids_;
  std::vector<Anchor> anchors_;
};

}  // namespace heddle
