#pragma once

#include <string>
#include <string_view>

#include "data/tokenizer/unicode.h"

namespace heddle {

/// `text` with each `what` replaced, from left to right. An empty `what` is found before each character and at the end,
/// as Rust's str::replace has it.
inline std::string replace_all(std::string_view text, std::string_view what, std::string_view by) {
  std::string out;
  if (what.empty()) {
    for (std::size_t at = 0; at < text.size();) {
      const auto length = static_cast<std::size_t>(unicode::decode(text.data() + at).length);
      out.append(by).append(text, at, length);
      at += length;
    }
    return out.append(by);
  }
  std::size_t begin = 0;
  for (std::size_t at = text.find(what); at != std::string_view::npos; at = text.find(what, begin)) {
    out.append(text, begin, at - begin).append(by);
    begin = at + what.size();
  }
  return out.append(text, begin);
}

}  // namespace heddle
