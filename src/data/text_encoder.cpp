#include "data/text_encoder.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "base/threads.h"
#include "data/row_records.h"

namespace heddle {
namespace {

/// Bytes encoded at a time by one thread, and by all: enough to hide what starting them costs.
constexpr std::size_t kPart = std::size_t{128} << 10, kWindow = std::size_t{8} << 20;
constexpr std::size_t kLongestCharacter = 4;

std::vector<std::string_view> cut_into_parts(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::string_view> parts;
  while (text.size() >= 2 * kPart) {
    const auto cut = tokenizer.find_cut(text, kPart);
    if (!cut) break;
    parts.push_back(text.substr(0, cut->end));
    text.remove_prefix(cut->begin);
  }
  parts.push_back(text);
  return parts;
}

/// Ids of each part, in order. What is thrown is what the first bad part throws.
std::vector<std::vector<std::int32_t>> encode_parts(const Tokenizer& tokenizer, std::string_view text) {
  const auto parts = cut_into_parts(tokenizer, text);
  std::vector<std::vector<std::int32_t>> ids(parts.size());
  std::vector<std::exception_ptr> failures(parts.size());
  parallel_for(static_cast<std::int64_t>(parts.size()), [&](std::int64_t index, int) {
    const auto i = static_cast<std::size_t>(index);
    try {
      ids[i] = tokenizer.encode(parts[i], false);
    } catch (...) {
      failures[i] = std::current_exception();
    }
  });
  for (const auto& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  return ids;
}

/// A cut near the end of the window, or else anywhere in it.
std::optional<Tokenizer::Cut> find_last_cut(const Tokenizer& tokenizer, std::string_view window) {
  for (std::size_t back = std::size_t{1} << 16;; back *= 16) {
    const bool is_all = back >= window.size();
    if (const auto cut = tokenizer.find_cut(window, is_all ? 1 : window.size() - back)) return cut;
    if (is_all) return std::nullopt;
  }
}

/// Knows line and column of what was checked, window after window.
class Utf8Check {
 public:
  /// Checks bytes that follow those checked before; all but the few of a character that is cut off, unless `is_last`.
  /// Returns how many were checked.
  std::size_t check(std::string_view text, bool is_last) {
    std::size_t good = find_invalid_utf8(text).value_or(text.size());
    count(text.substr(0, good));
    const bool may_go_on = !is_last && text.size() - good < kLongestCharacter;
    if (good < text.size() && !may_go_on) {
      throw RowError(line_, fmt::format("byte 0x{:02X} at column {} is not valid UTF-8",
                                        static_cast<unsigned char>(text[good]), column_));
    }
    return good;
  }

 private:
  void count(std::string_view text) {
    line_ += std::count(text.begin(), text.end(), '\n');
    const std::size_t line_end = text.rfind('\n');
    column_ = line_end == std::string_view::npos ? column_ + text.size() : text.size() - line_end;
  }
  std::int64_t line_ = 1;
  std::size_t column_ = 1;
};

}  // namespace

void encode_text(const Tokenizer& tokenizer, const ReadText& read, const UseIds& use) {
  Utf8Check utf8;
  std::string window;
  std::size_t checked = 0, wanted = kWindow;
  for (bool is_last = false; !is_last;) {
    const std::size_t held = window.size();
    window.resize(wanted);
    window.resize(held + read(std::span(window).subspan(held)));
    is_last = window.size() < wanted;
    checked += utf8.check(std::string_view(window).substr(checked), is_last);

    Tokenizer::Cut cut{window.size(), window.size()};
    if (!is_last) {
      const auto found = find_last_cut(tokenizer, std::string_view(window).substr(0, checked));
      if (!found) {
        wanted *= 2;
        continue;
      }
      cut = *found;
    }
    for (const auto& ids : encode_parts(tokenizer, std::string_view(window).substr(0, cut.end))) use(ids);
    window.erase(0, cut.begin);
    checked -= cut.begin;
    wanted = std::max(kWindow, window.size() + kWindow / 2);
  }
}

std::vector<std::int32_t> encode_text(const Tokenizer& tokenizer, std::string_view text) {
  auto parts = encode_parts(tokenizer, text);
  if (parts.size() == 1) return std::move(parts.front());
  std::vector<std::int32_t> ids;
  for (const auto& part : parts) ids.insert(ids.end(), part.begin(), part.end());
  return ids;
}

ReadText read_from(std::string_view text) {
  return [text](std::span<char> target) mutable {
    const std::size_t size = std::min(target.size(), text.size());
    std::memcpy(target.data(), text.data(), size);
    text.remove_prefix(size);
    return size;
  };
}

ReadText read_in_turn(ReadText first, ReadText second) {
  return [first = std::move(first), second = std::move(second)](std::span<char> target) {
    const std::size_t size = first(target);
    return size < target.size() ? size + second(target.subspan(size)) : size;
  };
}

}  // namespace heddle
