#include "data/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/error.h"
#include "data/jinja/characters.h"
#include "data/jinja/print.h"

namespace heddle::jinja {
namespace {

bool is_digit_character(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit_character(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

/// Text between quotes, its escapes as Python's codec unicode-escape reads them.
class Unescaper {
 public:
  explicit Unescaper(std::string_view text) : text_(text) {}

  std::string run() {
    while (at_ < text_.size()) {
      if (text_[at_] != '\\' || at_ + 1 == text_.size()) {
        out_ += text_[at_++];
      } else {
        ++at_;
        escape();
      }
    }
    return std::move(out_);
  }

 private:
  void escape() {
    const char c = text_[at_++];
    constexpr std::string_view kLetters = "\\'\"abfnrtv", kMeanings = "\\'\"\a\b\f\n\r\t\v";
    if (const auto letter = kLetters.find(c); letter != std::string_view::npos) {
      out_ += kMeanings[letter];
    } else if (c >= '0' && c <= '7') {
      unsigned code = static_cast<unsigned>(c - '0');
      for (int i = 0; i < 2 && at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '7'; ++i) {
        code = code * 8 + static_cast<unsigned>(text_[at_++] - '0');
      }
      unicode::append(out_, code);
    } else if (c == 'x') {
      hexadecimal(2);
    } else if (c == 'u') {
      hexadecimal(4);
    } else if (c == 'U') {
      hexadecimal(8);
    } else if (c == 'N') {
      fail("the escape \\N{{...}} is not supported");
    } else if (c != '\n') {
      out_ += '\\';
      out_ += c;
    }
  }

  void hexadecimal(std::size_t digits) {
    std::uint32_t code = 0;
    const auto* begin = text_.data() + at_;
    const bool fits = at_ + digits <= text_.size() && std::all_of(begin, begin + digits, is_hex);
    if (!fits) fail("truncated escape of {} hexadecimal digits in a string", digits);
    std::from_chars(begin, begin + digits, code, 16);
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) fail("U+{:04X} in a string is no character", code);
    unicode::append(out_, code);
    at_ += digits;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::string out_;
};

class Lexer {
 public:
  Lexer(std::string_view source, std::deque<std::string>& texts, Place& place)
      : source_(source), texts_(texts), place_(place) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) next_part();
    add(TokenKind::end, {});
    return std::move(tokens_);
  }

 private:
  bool starts_with(std::string_view text) const { return source_.substr(at_, text.size()) == text; }
  char peek(std::size_t ahead = 0) const { return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0'; }

  void advance(std::size_t bytes) {
    const auto* begin = source_.data() + at_;
    place_.line += static_cast<int>(std::count(begin, begin + bytes, '\n'));
    at_ += bytes;
  }
  void skip_space() { advance(source_.size() - at_ - strip_left(source_.substr(at_)).size()); }

  Token& add(TokenKind kind, std::string_view text) {
    Token token;
    token.kind = kind;
    token.text = text;
    token.line = place_.line;
    return tokens_.emplace_back(token);
  }
  void add_data(std::string_view text) {
    if (!text.empty()) add(TokenKind::data, text);
  }

  /// Text up to the next tag, and the tag.
  void next_part() {
    std::size_t tag = at_;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == std::string_view::npos || tag + 1 == source_.size()) {
        add_data(source_.substr(at_));
        return advance(source_.size() - at_);
      }
      const char second = source_[tag + 1];
      if (second == '%' || second == '{' || second == '#') break;
    }
    const char second = source_[tag + 1];
    const char sign = sign_at(tag + 2);
    add_data(text_before(tag, sign, second == '{'));
    advance(tag - at_);
    const std::size_t begin = sign != '\0' ? 3 : 2;
    if (second == '#') return comment(begin);
    if (second == '%' && raw(begin)) return;
    add(second == '{' ? TokenKind::variable_begin : TokenKind::block_begin, {});
    advance(begin);
    code(second == '{');
  }

  char sign_at(std::size_t at) const {
    return at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at] : '\0';
  }

  /// The text from here to a tag, without the space that the tag takes away.
  std::string_view text_before(std::size_t tag, char sign, bool is_variable) const {
    const std::string_view text = source_.substr(at_, tag - at_);
    if (sign == '-') return strip_right(text);
    if (sign == '+' || is_variable) return text;
    const std::size_t line = text.rfind('\n') + 1;  // npos + 1 is 0
    if ((line > 0 || line_starts_) && strip_left(text.substr(line)).empty()) return text.substr(0, line);
    return text;
  }

  /// Passes over the end of a tag: the line break behind it, or with "-" all space.
  bool end_of_tag(std::string_view end, bool trims_line, bool takes_plus) {
    const bool has_minus = peek() == '-', has_plus = takes_plus && peek() == '+';
    const std::size_t sign = has_minus || has_plus ? 1 : 0;
    if (source_.substr(at_ + sign, end.size()) != end) return false;
    const std::size_t begin = at_;
    advance(sign + end.size());
    if (has_minus) {
      skip_space();
    } else if (!has_plus && trims_line && peek() == '\n') {
      advance(1);
    }
    line_starts_ = at_ > begin && source_[at_ - 1] == '\n';
    return true;
  }

  void comment(std::size_t begin) {
    const int line = place_.line;
    advance(begin);
    std::size_t end = source_.find("#}", at_);
    if (end == std::string_view::npos) {
      place_.line = line;
      fail("Missing end of comment tag");
    }
    if (end > at_ && (source_[end - 1] == '-' || source_[end - 1] == '+')) --end;
    advance(end - at_);
    end_of_tag("#}", true, true);
  }

  /// {% raw %} up to {% endraw %}; false where the tag is another.
  bool raw(std::size_t begin) {
    const std::size_t saved_at = at_;
    const int saved_line = place_.line;
    advance(begin);
    skip_space();
    bool is_raw = starts_with("raw");
    if (is_raw) {
      advance(3);
      skip_space();
      is_raw = end_of_tag("%}", false, false);
    }
    if (!is_raw) {
      at_ = saved_at;
      place_.line = saved_line;
      return false;
    }
    line_starts_ = source_[at_ - 1] == '\n';
    for (std::size_t tag = source_.find("{%", at_); tag != std::string_view::npos; tag = source_.find("{%", tag + 1)) {
      const char sign = sign_at(tag + 2);
      const std::string_view inside = strip_left(source_.substr(tag + (sign != '\0' ? 3 : 2)));
      if (!inside.starts_with("endraw")) continue;
      const std::string_view end = strip_left(inside.substr(6));
      if (!end.starts_with("%}") && !end.starts_with("-%}") && !end.starts_with("+%}")) continue;
      add_data(text_before(tag, sign, false));
      advance(static_cast<std::size_t>(end.data() - source_.data()) - at_);
      end_of_tag("%}", true, true);
      return true;
    }
    place_.line = saved_line;
    fail("Missing end of raw directive");
  }

  /// What stands in {{ }} or {% %}.
  void code(bool is_variable) {
    std::string brackets;  // the closing ones still to come
    for (;;) {
      skip_space();
      if (brackets.empty()) {
        const Token end = {is_variable ? TokenKind::variable_end : TokenKind::block_end, {}, place_.line, 0, 0.0};
        if (is_variable ? end_of_tag("}}", false, false) : end_of_tag("%}", true, true)) {
          tokens_.push_back(end);
          return;
        }
      }
      if (at_ == source_.size()) return;  // the parser says what is missing
      if (!number() && !name() && !string()) operation(brackets);
    }
  }

  /// Digits with single "_" between them; the length, 0 where there are none.
  template <typename IsDigit>
  std::size_t digits(std::size_t ahead, IsDigit&& is_one) const {
    std::size_t length = 0;
    while (is_one(peek(ahead + length)) ||
           (length > 0 && peek(ahead + length) == '_' && is_one(peek(ahead + length + 1)))) {
      ++length;
    }
    return length;
  }

  std::string without_underscores(std::size_t length) const {
    std::string text(source_.substr(at_, length));
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    return text;
  }

  bool number() {
    if (!is_digit_character(peek())) return false;
    const std::size_t whole = digits(0, is_digit_character);
    std::size_t length = whole;
    bool is_floating = false;
    if (at_ == 0 || source_[at_ - 1] != '.') {
      if (peek(length) == '.') {
        if (const std::size_t fraction = digits(length + 1, is_digit_character)) {
          length += 1 + fraction;
          is_floating = true;
        }
      }
      if (peek(length) == 'e' || peek(length) == 'E') {
        const std::size_t sign = peek(length + 1) == '+' || peek(length + 1) == '-' ? 1 : 0;
        if (const std::size_t exponent = digits(length + 1 + sign, is_digit_character)) {
          length += 1 + sign + exponent;
          is_floating = true;
        }
      }
    }
    if (is_floating) {
      const std::string text = without_underscores(length);
      Token& token = add(TokenKind::floating, source_.substr(at_, length));
      if (std::from_chars(text.data(), text.data() + text.size(), token.floating).ec != std::errc()) {
        token.floating = std::strtod(text.c_str(), nullptr);  // beyond the range: infinite or 0
      }
      advance(length);
    } else {
      integer(whole);
    }
    return true;
  }

  void integer(std::size_t whole) {
    int base = 10;
    std::size_t length = whole, prefix = 0;
    if (peek() == '0') {
      const char letter = static_cast<char>(peek(1) | 0x20);
      const std::size_t first = peek(2) == '_' ? 3 : 2;
      const auto binary = [](char c) { return c == '0' || c == '1'; };
      const auto octal = [](char c) { return c >= '0' && c <= '7'; };
      std::size_t found = 0;
      if (letter == 'b' && (found = digits(first, binary)) > 0) base = 2;
      if (letter == 'o' && (found = digits(first, octal)) > 0) base = 8;
      if (letter == 'x' && (found = digits(first, is_hex)) > 0) base = 16;
      if (found > 0) {
        prefix = 2;
        length = first + found;
      } else {
        length = digits(0, [](char c) { return c == '0'; });
      }
    }
    const std::string text = without_underscores(length);
    Token& token = add(TokenKind::integer, source_.substr(at_, length));
    const auto result = std::from_chars(text.data() + prefix, text.data() + text.size(), token.integer, base);
    if (result.ec != std::errc()) fail("the number {} is beyond 64 bits", text);
    advance(length);
  }

  bool name() {
    std::size_t length = 0;
    while (at_ + length < source_.size()) {
      const auto [code, bytes] = unicode::decode(source_.data() + at_ + length);
      const bool is_mark =
          code >= 0x80 &&
          is_identifier("a" + std::string(source_.substr(at_ + length, static_cast<std::size_t>(bytes))));
      if (!is_word(code) && !is_mark) break;
      length += static_cast<std::size_t>(bytes);
    }
    if (length == 0) return false;
    const std::string_view text = source_.substr(at_, length);
    if (!is_identifier(text)) fail("Invalid character in identifier");
    add(TokenKind::name, text);
    advance(length);
    return true;
  }

  bool string() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') return false;
    std::size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return false;
    const std::string_view inside = source_.substr(at_ + 1, end - at_ - 1);
    if (inside.find('\\') == std::string_view::npos) {
      add(TokenKind::string, inside);
    } else {
      add(TokenKind::string, texts_.emplace_back(Unescaper(inside).run()));
    }
    advance(end + 1 - at_);
    return true;
  }

  void operation(std::string& brackets) {
    constexpr std::array<std::string_view, 26> kOperators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                             "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                             ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    const auto* const op =
        std::find_if(kOperators.begin(), kOperators.end(), [this](auto o) { return starts_with(o); });
    if (op == kOperators.end()) {
      const auto bytes = static_cast<std::size_t>(unicode::decode(source_.data() + at_).length);
      fail("unexpected char {} at {}", repr(Value(source_.substr(at_, bytes))), length_of(source_.substr(0, at_)));
    }
    constexpr std::string_view kOpen = "{([", kClose = "})]";
    if (const auto open = kOpen.find(op->front()); op->size() == 1 && open != std::string_view::npos) {
      brackets += kClose[open];
    } else if (op->size() == 1 && kClose.find(op->front()) != std::string_view::npos) {
      if (brackets.empty()) fail("unexpected '{}'", *op);
      if (brackets.back() != op->front()) fail("unexpected '{}', expected '{}'", *op, brackets.back());
      brackets.pop_back();
    }
    add(TokenKind::op, *op);
    advance(op->size());
  }

  std::string_view source_;
  std::deque<std::string>& texts_;
  Place& place_;
  std::size_t at_ = 0;
  bool line_starts_ = true;  // what was read last ended with a line break
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, std::deque<std::string>& texts, Place& place) {
  return Lexer(source, texts, place).run();
}

std::string normalize_lines(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text += source[i];
    } else if (i + 1 == source.size() || source[i + 1] != '\n') {
      text += '\n';
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace heddle::jinja
