#include "data/tokenizer/pattern.h"

#include <oniguruma.h>

#include <array>
#include <mutex>

#include "base/error.h"
#include "data/tokenizer/regex_properties.h"

namespace heddle {
namespace {

const OnigUChar* bytes(const char* text) { return reinterpret_cast<const OnigUChar*>(text); }

std::string message_of(int code, OnigErrorInfo* info) {
  std::array<OnigUChar, ONIG_MAX_ERROR_MESSAGE_LEN> buffer{};
  const int length =
      info == nullptr ? onig_error_code_to_str(buffer.data(), code) : onig_error_code_to_str(buffer.data(), code, info);
  return {reinterpret_cast<const char*>(buffer.data()), static_cast<std::size_t>(length)};
}

void start_oniguruma() {
  static std::once_flag once;
  std::call_once(once, [] {
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    onig_initialize(encodings, 1);
    define_regex_properties();
  });
}

struct Region {
  Region() : value(onig_region_new()) {}
  ~Region() { onig_region_free(value, 1); }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  OnigRegion* value;
};

/// First match in text[from..]; false if there is none.
bool search(re_pattern_buffer* regex, std::string_view text, std::size_t from, OnigRegion* region, Stretch& match) {
  const OnigUChar* const begin = bytes(text.data());
  const OnigUChar* const end = begin + text.size();
  onig_region_clear(region);
  const int result = onig_search(regex, begin, end, begin + from, end, region, ONIG_OPTION_NONE);
  if (result == ONIG_MISMATCH) return false;
  if (result < 0)
    fail("a regex of tokenizer.json failed on a text of {} bytes: {}", text.size(), message_of(result, nullptr));
  match = {static_cast<std::size_t>(region->beg[0]), static_cast<std::size_t>(region->end[0]), true};
  return true;
}

template <typename Next>
std::vector<Stretch> cover(std::string_view text, Next next) {
  std::vector<Stretch> stretches;
  std::size_t from = 0, covered = 0;
  std::size_t last_end = std::string_view::npos;
  Stretch match{};
  while (from <= text.size() && next(from, match)) {
    if (match.begin == match.end && match.end == last_end) {
      from += from < text.size() ? static_cast<std::size_t>(unicode::decode(text.data() + from).length) : 1;
      continue;
    }
    from = last_end = match.end;
    if (covered != match.begin) stretches.push_back({covered, match.begin, false});
    stretches.push_back(match);
    covered = match.end;
  }
  if (covered != text.size()) stretches.push_back({covered, text.size(), false});
  return stretches;
}

}  // namespace

Pattern Pattern::literal(std::string text) {
  Pattern pattern;
  pattern.text_ = std::move(text);
  return pattern;
}

Pattern Pattern::regex(const std::string& text, const std::string& where) {
  start_oniguruma();
  Pattern pattern;
  pattern.text_ = text;
  regex_t* compiled = nullptr;
  OnigErrorInfo info{};
  const std::string spelled = use_regex_properties(text);
  const int result = onig_new(&compiled, bytes(spelled.data()), bytes(spelled.data() + spelled.size()),
                              ONIG_OPTION_NONE, ONIG_ENCODING_UTF8, ONIG_SYNTAX_DEFAULT, &info);
  if (result != ONIG_NORMAL) fail("{}: the regex {} is wrong: {}", where, Json(text).dump(), message_of(result, &info));
  pattern.regex_ = std::shared_ptr<re_pattern_buffer>(compiled, [](regex_t* regex) { onig_free(regex); });
  return pattern;
}

Pattern Pattern::read(const JsonEntry& entry) {
  entry.require_object();
  if (const auto text = entry.optional_string("String")) return literal(*text);
  if (const auto text = entry.optional_string("Regex")) return regex(*text, entry.where());
  entry.refuse("{\"String\": ...} or {\"Regex\": ...}");
}

std::vector<Stretch> Pattern::find(std::string_view text) const {
  if (text.empty()) return {{0, 0, false}};
  if (regex_ == nullptr) {
    return cover(text, [&](std::size_t from, Stretch& match) {
      const std::size_t at = text.find(text_, from);
      match = {at, at + text_.size(), true};
      return at != std::string_view::npos;
    });
  }
  const Region region;
  return cover(text,
               [&](std::size_t from, Stretch& match) { return search(regex_.get(), text, from, region.value, match); });
}

}  // namespace heddle
