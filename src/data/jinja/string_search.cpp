#include "data/jinja/string_search.h"

#include <algorithm>

#include "data/jinja/characters.h"
#include "data/jinja/print.h"

namespace heddle::jinja {
namespace {

/// The first white space of `text`, or its size.
std::size_t find_space(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const auto [code, length] = unicode::decode(text.data() + at);
    if (is_space(code)) return at;
    at += static_cast<std::size_t>(length);
  }
  return at;
}

/// The end of the last white space of `text`, or 0.
std::size_t find_last_space(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0) {
    const auto [code, length] = unicode::decode_before(text, end);
    if (is_space(code)) return end;
    end -= static_cast<std::size_t>(length);
  }
  return 0;
}

}  // namespace

std::vector<std::string_view> split(std::string_view text, std::string_view separator, std::int64_t most) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  while (most < 0 || static_cast<std::int64_t>(parts.size()) < most) {
    const std::size_t at = text.find(separator, begin);
    if (at == std::string_view::npos) break;
    parts.push_back(text.substr(begin, at - begin));
    begin = at + separator.size();
  }
  parts.push_back(text.substr(begin));
  return parts;
}

std::vector<std::string_view> split_from_right(std::string_view text, std::string_view separator, std::int64_t most) {
  std::vector<std::string_view> parts;
  while (most < 0 || static_cast<std::int64_t>(parts.size()) < most) {
    const std::size_t at = text.rfind(separator);
    if (at == std::string_view::npos) break;
    parts.push_back(text.substr(at + separator.size()));
    text = text.substr(0, at);
  }
  parts.push_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_words(std::string_view text, std::int64_t most) {
  std::vector<std::string_view> parts;
  text = strip_left(text);
  while (!text.empty() && (most < 0 || static_cast<std::int64_t>(parts.size()) < most)) {
    const std::size_t end = find_space(text);
    parts.push_back(text.substr(0, end));
    text = strip_left(text.substr(end));
  }
  if (!text.empty()) parts.push_back(text);
  return parts;
}

std::vector<std::string_view> split_words_from_right(std::string_view text, std::int64_t most) {
  std::vector<std::string_view> parts;
  text = strip_right(text);
  while (!text.empty() && (most < 0 || static_cast<std::int64_t>(parts.size()) < most)) {
    const std::size_t begin = find_last_space(text);
    parts.push_back(text.substr(begin));
    text = strip_right(text.substr(0, begin));
  }
  if (!text.empty()) parts.push_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keeps_ends) {
  std::vector<std::string_view> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = line_break(text, at);
    if (end == 0) {
      ++at;
      continue;
    }
    lines.push_back(text.substr(begin, at - begin + (keeps_ends ? end : 0)));
    at += end;
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string replace_all(Runtime& runtime, std::string_view text, std::string_view from, std::string_view to,
                        std::int64_t most) {
  std::string out;
  runtime.spend_bytes(text.size());
  std::int64_t done = 0;
  const auto may_go_on = [&] { return most < 0 || done < most; };
  std::size_t begin = 0;
  if (from.empty()) {  // before each character, and at the end
    for (; may_go_on(); ++done) {
      out += to;
      check_printed(out);
      if (begin == text.size()) return out;
      const auto length = static_cast<std::size_t>(unicode::decode(text.data() + begin).length);
      out.append(text, begin, length);
      begin += length;
    }
  }
  for (; !from.empty() && may_go_on(); ++done) {
    const std::size_t at = text.find(from, begin);
    if (at == std::string_view::npos) break;
    out.append(text, begin, at - begin).append(to);
    check_printed(out);
    begin = at + from.size();
  }
  out.append(text, begin);
  return out;
}

namespace {

bool is_all(std::string_view text, bool (*wanted)(char32_t), bool (*refused)(char32_t)) {
  bool has_any = false;
  for (std::size_t at = 0; at < text.size();) {
    const auto [code, length] = unicode::decode(text.data() + at);
    if (refused(code) || is_title(code)) return false;
    has_any = has_any || wanted(code);
    at += static_cast<std::size_t>(length);
  }
  return has_any;
}

}  // namespace

bool is_upper_text(std::string_view text) { return is_all(text, is_upper, is_lower); }
bool is_lower_text(std::string_view text) { return is_all(text, is_lower, is_upper); }

}  // namespace heddle::jinja
