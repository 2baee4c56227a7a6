#include "data/tokenizer/regex_properties.h"

#include <oniguruma.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "data/tokenizer/unicode.h"

namespace heddle {
namespace {

constexpr char32_t code_points = 0x110000;
/// In the order of utf8proc_category_t.
constexpr std::string_view category_names[] = {"Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd",
                                               "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm",
                                               "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};
/// Those that differ between the two versions, as many as the engine takes.
constexpr std::array<const char*, 20> changed_names = {"L",  "Lu", "Ll", "Lm",   "Lo", "M",  "Mn", "Mc", "N",  "Nd",
                                                       "No", "P",  "Po", "Word", "S",  "So", "Sm", "C",  "Cn", "Cf"};

/// Oniguruma's form: the number of ranges, then first and last of each.
template <typename Belongs>
std::vector<OnigCodePoint> ranges_of(Belongs belongs_to) {
  std::vector<OnigCodePoint> ranges = {0};
  bool inside = false;
  for (char32_t code = 0; code < code_points; ++code) {
    const bool belongs = belongs_to(code);
    if (belongs && !inside) ranges.insert(ranges.end(), {code, code});
    if (belongs) ranges.back() = code;
    inside = belongs;
  }
  ranges[0] = static_cast<OnigCodePoint>(ranges.size() / 2);
  return ranges;
}

/// The engine's \w inside brackets: unlike Rust's without the joiners.
bool is_regex_word(char32_t c) { return c != 0x200C && c != 0x200D && unicode::classes().is(c, unicode::word); }

}  // namespace

void define_regex_properties() {
  static const std::vector<std::vector<OnigCodePoint>> kept = [] {
    std::vector<std::uint8_t> categories(code_points);
    for (char32_t code = 0; code < code_points; ++code) {
      categories[code] = static_cast<std::uint8_t>(unicode::category(code));
    }
    std::vector<std::vector<OnigCodePoint>> all;
    all.reserve(std::size(changed_names));
    for (const std::string_view name : changed_names) {
      all.push_back(ranges_of([&](char32_t code) {
        return name == "Word" ? is_regex_word(code) : category_names[categories[code]].starts_with(name);
      }));
    }
    return all;
  }();
  for (std::size_t i = 0; i < kept.size(); ++i) {
    // The engine keeps the pointer and only reads from it.
    const int result = onig_unicode_define_user_property(changed_names[i], const_cast<OnigCodePoint*>(kept[i].data()));
    HEDDLE_CHECK(result == ONIG_NORMAL);
  }
}

// Outside brackets the engine's \w has superscripts and fractions of Latin-1 too.
std::string use_regex_properties(std::string_view pattern) {
  struct Spelling {
    std::string_view own, outside, inside;
  };
  static constexpr Spelling spellings[] = {{"\\w", R"([\p{Word}\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE}])", "\\p{Word}"},
                                           {"\\W", R"([^\p{Word}\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE}])", "\\P{Word}"},
                                           {"\\d", "\\p{Nd}", "\\p{Nd}"},
                                           {"\\D", "\\P{Nd}", "\\P{Nd}"},
                                           {"[:punct:]", "[:punct:]", "\\p{P}\\p{S}"}};
  std::string out;
  int depth = 0;  // of brackets
  for (std::size_t at = 0; at < pattern.size();) {
    const std::string_view rest = pattern.substr(at);
    const auto* const found = std::find_if(std::begin(spellings), std::end(spellings),
                                           [rest](const auto& spelling) { return rest.starts_with(spelling.own); });
    if (found != std::end(spellings) && (depth > 0 || found->own != "[:punct:]")) {
      out += depth > 0 ? found->inside : found->outside;
      at += found->own.size();
      continue;
    }
    if (rest[0] == '[') ++depth;
    if (rest[0] == ']' && depth > 0) --depth;
    const std::size_t length = rest[0] == '\\' && rest.size() > 1 ? 2 : 1;  // an escaped backslash escapes nothing
    out += rest.substr(0, length);
    at += length;
  }
  return out;
}

}  // namespace heddle
