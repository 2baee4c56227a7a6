#include "data/tokenizer/normalization.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "data/tokenizer/unicode.h"
#include "data/tokenizer/unicode_exceptions.h"

namespace heddle::unicode {
namespace {

constexpr char32_t hangul_first = 0xAC00, hangul_last = 0xD7A3;
constexpr char32_t jamo_l = 0x1100, jamo_v = 0x1161, jamo_t = 0x11A7;
constexpr char32_t jamo_l_count = 19, jamo_v_count = 21, jamo_t_count = 28;

bool contains(std::span<const unicode_exceptions::Range> ranges, char32_t code) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [code](const auto& range) { return code >= range.first && code <= range.last; });
}

int combining_class_of(char32_t code) {
  const int value = utf8proc_get_property(static_cast<utf8proc_int32_t>(code))->combining_class;
  return value == 0 || contains(unicode_exceptions::unordered_marks, code) ? 0 : value;
}

void append_decomposed(std::u32string& out, char32_t code, bool compatibility) {
  std::array<utf8proc_int32_t, 32> parts{};
  int boundary = 0;
  const auto options =
      static_cast<utf8proc_option_t>(compatibility ? UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT : UTF8PROC_DECOMPOSE);
  const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), parts.data(),
                                             static_cast<utf8proc_ssize_t>(parts.size()), options, &boundary);
  HEDDLE_CHECK(count > 0 && count <= static_cast<utf8proc_ssize_t>(parts.size()));
  for (utf8proc_ssize_t i = 0; i < count; ++i) out.push_back(static_cast<char32_t>(parts[static_cast<std::size_t>(i)]));
}

char32_t compose_hangul(char32_t first, char32_t second) {
  if (first >= jamo_l && first < jamo_l + jamo_l_count && second >= jamo_v && second < jamo_v + jamo_v_count) {
    return hangul_first + ((first - jamo_l) * jamo_v_count + (second - jamo_v)) * jamo_t_count;
  }
  if (first >= hangul_first && first <= hangul_last && (first - hangul_first) % jamo_t_count == 0 && second > jamo_t &&
      second < jamo_t + jamo_t_count) {
    return first + (second - jamo_t);
  }
  return 0;
}

/// What the algorithm needs of each character, computed once from utf8proc.
class Tables {
 public:
  Tables() {
    for (char32_t code = 0; code < last_interesting; ++code) add(code);
  }

  char32_t compose(char32_t first, char32_t second) const {
    if (const char32_t syllable = compose_hangul(first, second)) return syllable;
    const auto found = composed_.find(std::uint64_t{first} << 32 | second);
    return found == composed_.end() ? 0 : found->second;
  }
  int combining_class(char32_t code) const { return code < last_interesting ? class_[code] : 0; }
  bool is_decomposed(char32_t code, bool compatibility) const {
    return code < last_interesting && (flags_[code] & (compatibility ? has_compatibility : has_canonical)) != 0;
  }
  bool is_inert(char32_t code, Form form) const {
    if (code >= last_interesting) return true;
    const bool compatibility = form == Form::nfkc || form == Form::nfkd;
    if (form == Form::nfd || form == Form::nfkd) return class_[code] == 0 && !is_decomposed(code, compatibility);
    return (flags_[code] & (compatibility ? may_change_nfkc : may_change_nfc)) == 0;
  }

 private:
  static constexpr char32_t last_interesting = 0x2FA20;  // no character from here on decomposes or is a mark
  enum Flag : std::uint8_t { has_canonical = 1, has_compatibility = 2, may_change_nfc = 4, may_change_nfkc = 8 };

  void set(char32_t code, int flags) { flags_[code] = static_cast<std::uint8_t>(flags_[code] | flags); }

  void add(char32_t code) {
    if (code >= 0xD800 && code <= 0xDFFF) return;
    class_[code] = static_cast<std::uint8_t>(combining_class_of(code));
    if (class_[code] != 0) set(code, may_change_nfc | may_change_nfkc);
    if (contains(unicode_exceptions::not_decomposed, code)) return;
    std::u32string canonical, compatible;
    append_decomposed(canonical, code, false);
    append_decomposed(compatible, code, true);
    const bool is_canonical = canonical.size() > 1 || canonical[0] != code;
    if (compatible.size() > 1 || compatible[0] != code) set(code, has_compatibility);
    if (compatible != canonical) set(code, may_change_nfkc);
    if (code >= jamo_v && code < jamo_t + jamo_t_count) set(code, may_change_nfc | may_change_nfkc);
    if (!is_canonical) return;
    set(code, has_canonical);
    if (code >= hangul_first && code <= hangul_last) return;
    if (recompose(canonical) != code) {
      set(code, may_change_nfc | may_change_nfkc);
      return;
    }
    // Full decompositions hide the pairs; the pair of code is (its decomposition but for the last, the last).
    const char32_t last = canonical.back();
    canonical.pop_back();
    composed_[std::uint64_t{recompose(canonical)} << 32 | last] = code;
    set(last, may_change_nfc | may_change_nfkc);
  }

  static char32_t recompose(const std::u32string& parts) {
    std::vector<utf8proc_int32_t> buffer(parts.begin(), parts.end());
    const auto count = utf8proc_normalize_utf32(buffer.data(), static_cast<utf8proc_ssize_t>(buffer.size()),
                                                static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    return count == 1 ? static_cast<char32_t>(buffer[0]) : 0;
  }

  std::vector<std::uint8_t> class_ = std::vector<std::uint8_t>(last_interesting);
  std::vector<std::uint8_t> flags_ = std::vector<std::uint8_t>(last_interesting);
  std::unordered_map<std::uint64_t, char32_t> composed_;
};

const Tables& tables() {
  static const Tables instance;
  return instance;
}

void sort_marks(std::u32string& text, const Tables& t) {
  for (std::size_t i = 0; i < text.size();) {
    if (t.combining_class(text[i]) == 0) {
      ++i;
      continue;
    }
    std::size_t end = i;
    while (end < text.size() && t.combining_class(text[end]) != 0) ++end;
    const auto at = [&text](std::size_t k) { return text.begin() + static_cast<std::ptrdiff_t>(k); };
    std::stable_sort(at(i), at(end),
                     [&t](char32_t a, char32_t b) { return t.combining_class(a) < t.combining_class(b); });
    i = end;
  }
}

/// Each mark joins the last starter unless a mark of the same or a higher class, or a starter, stands between.
void compose(std::u32string& text, const Tables& t) {
  constexpr std::size_t none = std::u32string::npos;
  std::size_t starter = none, size = 0;
  int last_class = -1;  // of what was kept since the starter; -1: nothing
  for (const char32_t code : text) {
    const int own = t.combining_class(code);
    if (starter != none && last_class < own) {
      if (const char32_t joined = t.compose(text[starter], code)) {
        text[starter] = joined;
        continue;
      }
    }
    if (own == 0) {
      starter = size;
      last_class = -1;
    } else {
      last_class = own;
    }
    text[size++] = code;
  }
  text.resize(size);
}

}  // namespace

bool is_surely_normalized(std::string_view text, Form form) {
  const Tables* t = nullptr;
  for (std::size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const Character c = decode(text.data() + at);
    if (t == nullptr) t = &tables();
    if (!t->is_inert(c.code, form)) return false;
    at += static_cast<std::size_t>(c.length);
  }
  return true;
}

std::string normalize(std::string_view text, Form form) {
  const Tables& t = tables();
  const bool compatibility = form == Form::nfkc || form == Form::nfkd;
  std::u32string codes;
  codes.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Character c = decode(text.data() + at);
    if (t.is_decomposed(c.code, compatibility)) {
      append_decomposed(codes, c.code, compatibility);
    } else {
      codes.push_back(c.code);
    }
    at += static_cast<std::size_t>(c.length);
  }
  sort_marks(codes, t);
  if (form == Form::nfc || form == Form::nfkc) compose(codes, t);
  std::string out;
  out.reserve(text.size());
  for (const char32_t code : codes) append(out, code);
  return out;
}

}  // namespace heddle::unicode
