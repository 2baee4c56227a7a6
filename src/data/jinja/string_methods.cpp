// The methods of Python's str. Of a Markup they give Markup, and escape what they are passed, as markupsafe does.
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

Value same_type(const Value& self, std::string_view text) { return Value(text, self.is_markup); }
Value copied(Runtime& runtime, const Value& self, const std::string& text) {
  runtime.spend_bytes(text.size());
  return runtime.text(text, self.is_markup);
}

template <std::string (*Map)(std::string_view)>
Value mapped(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.expect_none();
  return copied(runtime, self, Map(self.text()));
}

// strip and its kin

enum class Side : std::uint8_t { left, right, both };

template <Side side>
Value stripped(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto [set] = arguments.bind<1>({"chars"}, 0);
  runtime.spend(1);
  std::string_view text = self.text();
  if (set.is(Kind::missing) || set.is(Kind::none)) {
    if (side != Side::right) text = strip_left(text);
    if (side != Side::left) text = strip_right(text);
  } else {
    const std::string_view characters = string_of(set, "strip arg");
    runtime.spend_bytes(text.size() + characters.size());
    if (side != Side::right) text = strip_left(text, characters);
    if (side != Side::left) text = strip_right(text, characters);
  }
  return same_type(self, text);
}

Value remove_prefix(Runtime&, const Value& self, Arguments& arguments) {
  const auto [prefix] = arguments.bind<1>({"prefix"}, 1);
  std::string_view text = self.text();
  const auto part = string_of(prefix, "removeprefix() argument");
  if (text.starts_with(part)) text.remove_prefix(part.size());
  return same_type(self, text);
}

Value remove_suffix(Runtime&, const Value& self, Arguments& arguments) {
  const auto [suffix] = arguments.bind<1>({"suffix"}, 1);
  std::string_view text = self.text();
  const auto part = string_of(suffix, "removesuffix() argument");
  if (text.ends_with(part)) text.remove_suffix(part.size());
  return same_type(self, text);
}

// split and its kin

Value list_of(Runtime& runtime, const Value& self, std::span<const std::string_view> parts) {
  runtime.check_elements(parts.size());
  auto* items = static_cast<Value*>(runtime.arena.allocate(parts.size() * sizeof(Value)));
  for (std::size_t i = 0; i < parts.size(); ++i) new (items + i) Value(parts[i], self.is_markup);
  return Value::list({items, parts.size()});
}

template <bool from_right>
Value split(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto [separator, limit] = arguments.bind<2>({"sep", "maxsplit"}, 0);
  runtime.spend_bytes(self.size);
  const std::int64_t most = limit.is(Kind::missing) ? -1 : integer_of(limit);
  std::vector<std::string_view> parts;
  if (separator.is(Kind::missing) || separator.is(Kind::none)) {
    parts = from_right ? split_words_from_right(self.text(), most) : split_words(self.text(), most);
  } else {
    const auto by = string_of(separator, "sep");
    if (by.empty()) fail("empty separator");
    parts = from_right ? split_from_right(self.text(), by, most) : jinja::split(self.text(), by, most);
  }
  return list_of(runtime, self, parts);
}

Value split_lines_of(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto [keep] = arguments.bind<1>({"keepends"}, 0);
  runtime.spend_bytes(self.size);
  return list_of(runtime, self, split_lines(self.text(), flag_or(keep, false)));
}

template <bool from_right>
Value partition(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto [separator] = arguments.bind<1>({"sep"}, 1);
  const auto by = string_of(separator, "sep");
  if (by.empty()) fail("empty separator");
  runtime.spend_bytes(self.size);
  const std::string_view text = self.text();
  const std::size_t at = from_right ? text.rfind(by) : text.find(by);
  std::array<std::string_view, 3> parts;
  if (at != std::string_view::npos) {
    parts = {text.substr(0, at), by, text.substr(at + by.size())};
  } else {
    parts[from_right ? 2 : 0] = text;
  }
  const Value values[] = {same_type(self, parts[0]), same_type(self, parts[1]), same_type(self, parts[2])};
  return runtime.tuple(values);
}

Value join(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto [items] = arguments.bind<1>({"iterable"}, 1);
  if (!is_iterable(items)) fail("can only join an iterable");
  Cursor cursor(runtime, items);
  std::string out;
  std::size_t count = 0;
  for (Value item; cursor.next(runtime, item); ++count) {
    if (!self.is_markup && !item.is_string()) {
      fail("sequence item {}: expected str instance, {} found", count, type_name(item));
    }
    if (count > 0) out += self.text();
    out += self.is_markup ? escape(runtime, item).text() : item.text();
    check_printed(out);
  }
  return copied(runtime, self, out);
}

// searching

/// The part of a text that the arguments start and end leave, and where it begins in characters; none where it begins
/// behind the end.
struct Part {
  std::string_view text;
  std::int64_t start = 0;
  bool exists = true;
};

Part part_of(Runtime& runtime, const Value& self, const Value& start, const Value& end) {
  runtime.spend_bytes(self.size);
  const std::string_view text = self.text();
  const bool has_start = !start.is(Kind::missing) && !start.is(Kind::none);
  const bool has_end = !end.is(Kind::missing) && !end.is(Kind::none);
  if (!has_start && !has_end) return {text};
  const auto size = static_cast<std::int64_t>(length_of(text));
  const auto place = [size](std::int64_t at) { return at < 0 ? (at < -size ? 0 : at + size) : at; };
  const std::int64_t first = has_start ? place(integer_of(start)) : 0;
  const std::int64_t last = std::min(has_end ? place(integer_of(end)) : size, size);
  if (first > last) return {{}, first, false};
  const std::size_t begin = offset_of(text, static_cast<std::size_t>(first));
  const std::size_t stop = offset_of(text, static_cast<std::size_t>(last));
  return {text.substr(begin, stop - begin), first};
}

enum class Missing : std::uint8_t { minus_one, error };

template <bool from_right, Missing missing>
Value find_in(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto [wanted, start, end] = arguments.bind<3>({"sub", "start", "end"}, 1);
  const auto text = string_of(wanted, "find() argument");
  const Part part = part_of(runtime, self, start, end);
  const std::size_t at = from_right ? part.text.rfind(text) : part.text.find(text);
  if (part.exists && at != std::string_view::npos) {
    return Value(part.start + static_cast<std::int64_t>(length_of(part.text.substr(0, at))));
  }
  if (missing == Missing::error) fail("substring not found");
  return Value(std::int64_t{-1});
}

Value count(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto [wanted, start, end] = arguments.bind<3>({"sub", "start", "end"}, 1);
  const auto text = string_of(wanted, "count() argument");
  const Part part = part_of(runtime, self, start, end);
  if (!part.exists) return Value(std::int64_t{0});
  if (text.empty()) return Value(length_of(part.text) + 1);
  std::int64_t found = 0;
  for (std::size_t at = part.text.find(text); at != std::string_view::npos;
       at = part.text.find(text, at + text.size())) {
    ++found;
  }
  return Value(found);
}

template <bool at_end>
Value borders_with(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto [wanted, start, end] = arguments.bind<3>({"prefix", "start", "end"}, 1);
  const bool is_plain = start.is(Kind::missing) && end.is(Kind::missing);
  const Part part = is_plain ? Part{self.text()} : part_of(runtime, self, start, end);
  const auto matches = [&part](const Value& text) {
    if (!text.is_string()) {
      fail("{} first arg must be str or a tuple of str, not {}", at_end ? "endswith" : "startswith", type_name(text));
    }
    return part.exists && (at_end ? part.text.ends_with(text.text()) : part.text.starts_with(text.text()));
  };
  runtime.spend(1);
  if (!wanted.is(Kind::tuple)) return Value(matches(wanted));
  return Value(std::any_of(wanted.items().begin(), wanted.items().end(), matches));
}

Value replace(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto [old, with, limit] = arguments.bind<3>({"old", "new", "count"}, 2);
  const std::string_view from = string_of(old, "replace() argument 1");
  std::string_view to = string_of(with, "replace() argument 2");
  if (self.is_markup) to = escape(runtime, with).text();
  return copied(runtime, self,
                replace_all(runtime, self.text(), from, to, limit.is(Kind::missing) ? -1 : integer_of(limit)));
}

// padding

std::string_view fill_of(Runtime& runtime, const Value& self, const Value& fill) {
  if (fill.is(Kind::missing)) return " ";
  std::string_view text = string_of(fill, "The fill character");
  if (self.is_markup) text = escape(runtime, fill).text();
  if (length_of(text) != 1) fail("The fill character must be exactly one character long");
  return text;
}

Value padded(Runtime& runtime, const Value& self, std::string_view fill, std::int64_t left, std::int64_t right) {
  const auto times = static_cast<std::size_t>(std::max<std::int64_t>(left, 0) + std::max<std::int64_t>(right, 0));
  if (times > kMaxPrinted / std::max<std::size_t>(fill.size(), 1))
    fail("a text padded by {} characters is too long", times);
  std::string out;
  for (std::int64_t i = 0; i < left; ++i) out += fill;
  out += self.text();
  for (std::int64_t i = 0; i < right; ++i) out += fill;
  return copied(runtime, self, out);
}

template <Side side>
Value pad(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto [width, fill] = arguments.bind<2>({"width", "fillchar"}, 1);
  const auto character = fill_of(runtime, self, fill);
  const std::int64_t wanted = integer_of(width), size = static_cast<std::int64_t>(length_of(self.text()));
  if (wanted <= size) return self;
  const std::int64_t missing = wanted - size;
  if (side == Side::left) return padded(runtime, self, character, missing, 0);
  if (side == Side::right) return padded(runtime, self, character, 0, missing);
  const std::int64_t left = missing / 2 + (missing & wanted & 1);  // as str.center rounds
  return padded(runtime, self, character, left, missing - left);
}

Value zero_fill(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto [width] = arguments.bind<1>({"width"}, 1);
  const std::int64_t missing = integer_of(width) - static_cast<std::int64_t>(length_of(self.text()));
  const bool is_signed = self.size > 0 && (self.bytes[0] == '-' || self.bytes[0] == '+');
  if (missing <= 0) return self;
  const Value digits = same_type(self, self.text().substr(is_signed ? 1 : 0));
  const Value filled = padded(runtime, digits, "0", missing, 0);
  if (!is_signed) return filled;
  return copied(runtime, self, std::string(1, self.bytes[0]).append(filled.text()));
}

Value expand_tabs(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto [size] = arguments.bind<1>({"tabsize"}, 0);
  const std::int64_t width = size.is(Kind::missing) ? 8 : integer_of(size);
  if (width > 1000) fail("a tabsize of {} is too large", width);
  std::string out;
  std::int64_t column = 0;
  for (const char c : self.text()) {
    if (c == '\t') {
      if (width > 0) {
        const std::int64_t blanks = width - column % width;
        out.append(static_cast<std::size_t>(blanks), ' ');
        column += blanks;
      }
    } else {
      out += c;
      if (unicode::starts_character(c)) ++column;
      if (c == '\n' || c == '\r') column = 0;
    }
    check_printed(out);
  }
  return copied(runtime, self, out);
}

// questions about every character

template <bool (*holds)(char32_t)>
Value all_are(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.expect_none();
  runtime.spend_bytes(self.size);
  const std::string_view text = self.text();
  for (std::size_t at = 0; at < text.size();) {
    const auto [code, length] = unicode::decode(text.data() + at);
    if (!holds(code)) return Value(false);
    at += static_cast<std::size_t>(length);
  }
  return Value(!text.empty());
}

bool is_alphanumeric(char32_t code) {
  return is_alphabetic(code) || is_decimal(code) || is_digit(code) || is_numeric(code);
}
bool is_ascii(char32_t code) { return code < 0x80; }

template <bool upper>
Value has_case_of(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.expect_none();
  runtime.spend_bytes(self.size);
  return Value(upper ? is_upper_text(self.text()) : is_lower_text(self.text()));
}

Value is_title_text(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.expect_none();
  runtime.spend_bytes(self.size);
  bool in_word = false, has_word = false;
  const std::string_view text = self.text();
  for (std::size_t at = 0; at < text.size();) {
    const auto [code, length] = unicode::decode(text.data() + at);
    at += static_cast<std::size_t>(length);
    const bool starts = is_upper(code) || is_title(code), goes_on = is_lower(code);
    if ((starts && in_word) || (goes_on && !in_word)) return Value(false);
    in_word = starts || goes_on;
    has_word = has_word || in_word;
  }
  return Value(has_word);
}

template <bool if_empty, bool (*holds)(char32_t)>
Value all_or_empty(Runtime& runtime, const Value& self, Arguments& arguments) {
  if (self.size == 0) return Value(if_empty);
  return all_are<holds>(runtime, self, arguments);
}

Value is_identifier_text(Runtime&, const Value& self, Arguments& arguments) {
  arguments.expect_none();
  return Value(is_identifier(self.text()));
}

Value format(Runtime& runtime, const Value& self, Arguments& arguments) {
  return format_braces(runtime, self, arguments);
}

Value format_map(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto [mapping] = arguments.bind<1>({"mapping"}, 1);
  std::vector<Keyword> keywords;
  if (!mapping.is(Kind::dict)) fail("format_map() argument must be a mapping, not {}", type_name(mapping));
  for (const auto& [key, value] : mapping.dict->entries) {
    if (key.is_string()) keywords.push_back({key.text(), value});
  }
  return format_braces(runtime, self, Arguments("format_map", {}, keywords));
}

constexpr Method kMethods[] = {
    {"strip", stripped<Side::both>},
    {"lstrip", stripped<Side::left>},
    {"rstrip", stripped<Side::right>},
    {"removeprefix", remove_prefix},
    {"removesuffix", remove_suffix},
    {"split", split<false>},
    {"rsplit", split<true>},
    {"splitlines", split_lines_of},
    {"partition", partition<false>},
    {"rpartition", partition<true>},
    {"join", join},
    {"find", find_in<false, Missing::minus_one>},
    {"rfind", find_in<true, Missing::minus_one>},
    {"index", find_in<false, Missing::error>},
    {"rindex", find_in<true, Missing::error>},
    {"count", count},
    {"startswith", borders_with<false>},
    {"endswith", borders_with<true>},
    {"replace", replace},
    {"upper", mapped<upper>},
    {"lower", mapped<lower>},
    {"title", mapped<title>},
    {"capitalize", mapped<capitalize>},
    {"swapcase", mapped<swapcase>},
    {"casefold", mapped<casefold>},
    {"center", pad<Side::both>},
    {"ljust", pad<Side::right>},
    {"rjust", pad<Side::left>},
    {"zfill", zero_fill},
    {"expandtabs", expand_tabs},
    {"isalpha", all_are<is_alphabetic>},
    {"isalnum", all_are<is_alphanumeric>},
    {"isdecimal", all_are<is_decimal>},
    {"isdigit", all_are<is_digit>},
    {"isnumeric", all_are<is_numeric>},
    {"isspace", all_are<is_space>},
    {"isascii", all_or_empty<true, is_ascii>},
    {"isprintable", all_or_empty<true, is_printable>},
    {"isupper", has_case_of<true>},
    {"islower", has_case_of<false>},
    {"istitle", is_title_text},
    {"isidentifier", is_identifier_text},
    {"format", format},
    {"format_map", format_map},
};

}  // namespace

Methods string_methods() { return kMethods; }

}  // namespace heddle::jinja
