// Filters over texts, and tojson.
#include <algorithm>
#include <array>
#include <vector>

#include "data/jinja/arguments.h"
#include "data/jinja/builtins.h"
#include "data/jinja/characters.h"
#include "data/jinja/operators.h"
#include "data/jinja/print.h"
#include "data/jinja/sequences.h"
#include "data/jinja/string_search.h"

namespace heddle::jinja {
namespace {

/// The input as a text; a Markup stays one.
Value soft_string(Runtime& runtime, const Value& input) {
  return input.is_string() ? input : Value(text_of(runtime, input));
}

Value copied(Runtime& runtime, const Value& like, const std::string& text) {
  runtime.spend_bytes(text.size());
  return runtime.text(text, like.is_markup);
}

template <std::string (*Map)(std::string_view)>
Value mapped(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.expect_none();
  const Value text = soft_string(runtime, input);
  return copied(runtime, text, Map(text.text()));
}

std::string title_words(std::string_view text) {
  const auto starts_word = [](char32_t code) {
    return is_space(code) || code == '-' || code == '(' || code == '{' || code == '[' || code == '<';
  };
  std::string out;
  std::size_t at = 0;
  while (at < text.size()) {
    std::size_t end = at;
    const bool is_word = !starts_word(unicode::decode(text.data() + at).code);
    while (end < text.size()) {
      const auto [code, length] = unicode::decode(text.data() + end);
      if (starts_word(code) == is_word) break;
      end += static_cast<std::size_t>(length);
    }
    const std::string_view part = text.substr(at, end - at);
    const auto first = static_cast<std::size_t>(unicode::decode(part.data()).length);
    out += upper(part.substr(0, first));
    out += lower(part.substr(first));
    at = end;
  }
  return out;
}

Value string(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.expect_none();
  return soft_string(runtime, input);
}

Value trim(Runtime& runtime, const Value& input, Arguments& arguments) {
  const auto [set] = arguments.bind<1>({"chars"}, 0);
  const Value text = soft_string(runtime, input);
  runtime.spend(1);
  if (set.is(Kind::missing) || set.is(Kind::none)) return Value(strip(text.text()), text.is_markup);
  const std::string_view characters = string_of(set, "strip arg");
  runtime.spend_bytes(text.size + characters.size());
  return Value(strip_left(strip_right(text.text(), characters), characters), text.is_markup);
}

Value replace(Runtime& runtime, const Value& input, Arguments& arguments) {
  const auto [old, with, limit] = arguments.bind<3>({"old", "new", "count"}, 2);
  const std::string_view text = text_of(runtime, input), from = text_of(runtime, old), to = text_of(runtime, with);
  return runtime.text(replace_all(runtime, text, from, to, integer_or(limit, -1)));
}

Value center(Runtime& runtime, const Value& input, Arguments& arguments) {
  const auto [width] = arguments.bind<1>({"width"}, 0);
  const Value text = soft_string(runtime, input);
  const Value wanted = width.is(Kind::missing) ? Value(std::int64_t{80}) : width;
  Arguments passed("center", {&wanted, 1});
  return find_methods("center").string->function(runtime, text, passed);
}

Value format(Runtime& runtime, const Value& input, Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.keywords.empty()) {
    fail("can't handle positional and keyword arguments at the same time");
  }
  const Value text = soft_string(runtime, input);
  if (arguments.keywords.empty()) return format_percent(runtime, text, runtime.tuple(arguments.positional));
  std::vector<Entry> entries;
  for (const auto& [name, value] : arguments.keywords) entries.push_back({Value(name), value});
  return format_percent(runtime, text, runtime.dict(entries));
}

Value indent(Runtime& runtime, const Value& input, Arguments& arguments) {
  const auto [width, first, blank] = arguments.bind<3>({"width", "first", "blank"}, 0);
  if (!input.is_string()) operate(runtime, BinaryOp::add, input, Value(std::string_view("\n")));  // Python's error
  std::string indention(4, ' ');
  if (width.is_string()) {
    indention = width.text();
  } else if (!width.is(Kind::missing)) {
    const std::int64_t blanks = std::max<std::int64_t>(integer_of(width), 0);
    if (static_cast<std::size_t>(blanks) > kMaxPrinted) fail("an indentation of {} is too large", blanks);
    indention.assign(static_cast<std::size_t>(blanks), ' ');
  }
  std::string text(input.text());
  text += '\n';
  std::string out = flag_or(first, false) ? indention : std::string();
  bool is_first = true;
  for (const std::string_view line : split_lines(text, false)) {
    if (!is_first) out += '\n';
    if (!is_first && (!line.empty() || flag_or(blank, false))) out += indention;
    is_first = false;
    out += line;
    check_printed(out);
  }
  return copied(runtime, input, out);
}

Value truncate(Runtime& runtime, const Value& input, Arguments& arguments) {
  const auto [length, kill, end, leeway] = arguments.bind<4>({"length", "killwords", "end", "leeway"}, 0);
  const std::int64_t most = length.is(Kind::missing) ? 255 : integer_of(length), slack = integer_or(leeway, 5);
  const std::string_view ending = end.is(Kind::missing) ? std::string_view("...") : string_of(end, "end");
  const auto ending_length = static_cast<std::int64_t>(length_of(ending));
  if (most < ending_length) fail("expected length >= {}, got {}", ending_length, most);
  if (slack < 0) fail("expected leeway >= 0, got {}", slack);
  const std::int64_t size = length_or_fail(input);
  if (size <= slack || size - slack <= most) return input;
  if (!input.is_string()) fail("'{}' object cannot be truncated; expected a text", type_name(input));
  std::string_view text =
      input.text().substr(0, offset_of(input.text(), static_cast<std::size_t>(most - ending_length)));
  if (!flag_or(kill, false)) text = split_from_right(text, " ", 1).front();
  return operate(runtime, BinaryOp::add, Value(text, input.is_markup), Value(ending));
}

Value wordcount(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.expect_none();
  const std::string_view text = text_of(runtime, input);
  runtime.spend_bytes(text.size());
  std::int64_t words = 0;
  bool in_word = false;
  for (std::size_t at = 0; at < text.size();) {
    const auto [code, length] = unicode::decode(text.data() + at);
    words += is_word(code) && !in_word ? 1 : 0;
    in_word = is_word(code);
    at += static_cast<std::size_t>(length);
  }
  return Value(words);
}

Value tojson(Runtime& runtime, const Value& input, Arguments& arguments) {
  const auto [ascii, indention, separators, sorted] =
      arguments.bind<4>({"ensure_ascii", "indent", "separators", "sort_keys"}, 0);
  JsonStyle style;
  style.ensure_ascii = flag_or(ascii, false);
  style.sort_keys = flag_or(sorted, false);
  style.has_lines = !indention.is(Kind::missing) && !indention.is(Kind::none);
  std::string blanks;
  if (style.has_lines) {
    style.item_separator = ",";
    if (indention.is_string()) {
      style.indent = indention.text();
    } else {
      blanks.assign(static_cast<std::size_t>(std::clamp<std::int64_t>(integer_of(indention), 0, 1000)), ' ');
      style.indent = blanks;
    }
  }
  if (!separators.is(Kind::missing) && !separators.is(Kind::none)) {
    const auto parts = unpack(runtime, separators);
    if (parts.size() != 2) fail("separators are {} values; expected 2", parts.size());
    style.item_separator = string_of(parts[0], "item separator");
    style.key_separator = string_of(parts[1], "key separator");
  }
  std::string out;
  append_json(runtime, out, input, style);
  return copied(runtime, Value(), out);
}

constexpr Named<FilterFunction> kFilters[] = {
    {"upper", mapped<upper>},
    {"lower", mapped<lower>},
    {"capitalize", mapped<capitalize>},
    {"title", mapped<title_words>},
    {"string", string},
    {"trim", trim},
    {"replace", replace},
    {"center", center},
    {"format", format},
    {"indent", indent},
    {"truncate", truncate},
    {"wordcount", wordcount},
    {"tojson", tojson},
};

}  // namespace

Filters text_filters() { return kFilters; }

}  // namespace heddle::jinja
