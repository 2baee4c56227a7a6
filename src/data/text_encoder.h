#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "data/tokenizer.h"

namespace heddle {

/// Fills the target with the next bytes of a text and returns their number: fewer only at the end.
using ReadText = std::function<std::size_t(std::span<char> target)>;
/// Takes the next ids.
using UseIds = std::function<void(std::span<const std::int32_t> ids)>;

/// Encodes a text of any length, without special tokens, on all threads: window by window, each in parts that end where
/// the tokenizer knows that a text may be cut (Tokenizer::find_cut). The ids are those of the whole text, whatever the
/// number of threads; memory is bounded where there are such places, else the text is encoded as one. Throws RowError
/// with line and column where it is not UTF-8, before ids of that window are given out.
void encode_text(const Tokenizer& tokenizer, const ReadText& read, const UseIds& use);

/// The same for a text in memory, which must be UTF-8. Short ones are not cut.
std::vector<std::int32_t> encode_text(const Tokenizer& tokenizer, std::string_view text);

/// Reads a text in memory, which must outlive what is returned.
ReadText read_from(std::string_view text);
/// Reads one, and when that has ended the other.
ReadText read_in_turn(ReadText first, ReadText second);

}  // namespace heddle
