// text % values
#include <algorithm>
#include <charconv>
#include <cmath>

#include "data/jinja/arguments.h"
#include "data/jinja/characters.h"
#include "data/jinja/number_text.h"
#include "data/jinja/operators.h"
#include "data/jinja/print.h"
#include "data/jinja/sequences.h"

namespace heddle::jinja {
namespace {

constexpr std::int64_t kMaxWidth = 1'000'000;

class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, std::string_view format, const Value& values, bool is_markup)
      : runtime_(runtime), format_(format), values_(values), is_markup_(is_markup) {}

  std::string run() {
    std::string out;
    while (at_ < format_.size()) {
      const std::size_t percent = std::min(format_.find('%', at_), format_.size());
      out.append(format_, at_, percent - at_);
      at_ = percent + 1;
      if (percent == format_.size()) break;
      append_conversion(out);
      check_printed(out);
    }
    // What has subscripts counts as a mapping, of which not everything needs to be used.
    const bool is_mapping =
        values_.is(Kind::dict) || values_.is(Kind::list) || values_.is(Kind::range) || values_.is(Kind::undefined);
    const std::size_t given = values_.is(Kind::tuple) ? values_.size : 1;
    if (used_ < given && !is_mapping) fail("not all arguments converted during string formatting");
    return out;
  }

 private:
  struct Conversion {
    bool left = false, plus = false, blank = false, zero = false, alternate = false;
    std::int64_t width = 0, precision = -1;
  };

  char current() const {
    if (at_ >= format_.size()) fail("incomplete format");
    return format_[at_];
  }

  Value next_value() {
    if (values_.is(Kind::tuple)) {
      if (used_ >= values_.size) fail("not enough arguments for format string");
      return values_.elements[used_++];
    }
    if (used_ > 0) fail("not enough arguments for format string");
    ++used_;
    return values_;
  }

  std::int64_t read_number() {
    if (current() == '*') {
      ++at_;
      const Value value = next_value();
      if (!value.is_integral()) fail("* wants int");
      return value.as_integer();
    }
    std::int64_t number = 0;
    for (; current() >= '0' && current() <= '9'; ++at_)
      number = std::min(number * 10 + (format_[at_] - '0'), kMaxWidth + 1);
    return number;
  }

  Value keyed_value() {
    std::size_t end = ++at_;
    for (int open = 1; open > 0; ++end) {
      if (end >= format_.size()) fail("incomplete format key");
      if (format_[end] == '(') ++open;
      if (format_[end] == ')') --open;
    }
    const std::string_view key = format_.substr(at_, end - 1 - at_);
    at_ = end;
    if (!values_.is(Kind::dict)) fail("format requires a mapping");
    const Value* value = find(*values_.dict, key);
    if (value == nullptr) fail("{}", repr(Value(key)));  // Python's KeyError
    return *value;
  }

  void append_conversion(std::string& out) {
    Conversion c;
    Value keyed = Value::missing();
    if (current() == '(') keyed = keyed_value();
    for (;; ++at_) {
      const char flag = current();
      if (flag == '-') {
        c.left = true;
      } else if (flag == '+') {
        c.plus = true;
      } else if (flag == ' ') {
        c.blank = true;
      } else if (flag == '0') {
        c.zero = true;
      } else if (flag == '#') {
        c.alternate = true;
      } else {
        break;
      }
    }
    c.width = read_number();
    if (c.width < 0) {
      c.left = true;
      c.width = -c.width;
    }
    if (current() == '.') {
      ++at_;
      c.precision = std::max<std::int64_t>(read_number(), 0);
    }
    if (c.width > kMaxWidth || c.precision > kMaxWidth) fail("a width of that many characters is too large");
    while (current() == 'l' || current() == 'h' || current() == 'L') ++at_;
    const char type = current();
    ++at_;
    if (type == '%') {
      out += '%';
      return;
    }
    const Value value = keyed.is(Kind::missing) ? next_value() : keyed;
    append_value(out, value, c, type);
  }

  void append_value(std::string& out, const Value& value, const Conversion& c, char type) {
    constexpr std::string_view kIntegers = "diuxXo", kFloats = "eEfFgG";
    if (type == 's' || type == 'r' || type == 'a') return append_string(out, value, c, type);
    if (type == 'c') return append_character(out, value, c);
    if (kFloats.find(type) != std::string_view::npos) {
      const double number = number_of(value);
      const NumberStyle style{type, static_cast<int>(c.precision), c.alternate, '\0'};
      return append_number(out, std::signbit(number) && !std::isnan(number), digits_of(number, style), "", c);
    }
    if (kIntegers.find(type) == std::string_view::npos) {
      fail("unsupported format character '{}' (0x{:x}) at index {}", type, static_cast<unsigned char>(type), at_ - 1);
    }
    append_integer(out, value, c, type);
  }

  void append_integer(std::string& out, const Value& value, const Conversion& c, char type) {
    if (value.is(Kind::undefined)) fail_undefined(value);
    const bool is_decimal = type == 'd' || type == 'i' || type == 'u';
    if (!value.is_number() || (!is_decimal && value.is(Kind::floating))) {
      fail("%{} format: {} is required, not {}", type, is_decimal ? "a real number" : "an integer", type_name(value));
    }
    std::int64_t number = 0;
    if (value.is(Kind::floating)) {
      if (!(std::fabs(value.floating) < 0x1p63)) fail("cannot convert float {} to integer", repr(value));
      number = static_cast<std::int64_t>(value.floating);
    } else {
      number = value.as_integer();
    }
    const auto magnitude = number < 0 ? 0 - static_cast<std::uint64_t>(number) : static_cast<std::uint64_t>(number);
    std::string digits = digits_of(magnitude, {is_decimal ? 'd' : type, -1, false, '\0'});
    if (c.precision > static_cast<std::int64_t>(digits.size())) {
      digits.insert(0, static_cast<std::size_t>(c.precision) - digits.size(), '0');
    }
    const std::string prefix = c.alternate && !is_decimal ? std::string("0") + type : std::string();
    append_number(out, number < 0, digits, prefix, c);
  }

  static void append_number(std::string& out, bool is_negative, const std::string& digits, const std::string& prefix,
                            const Conversion& c) {
    const std::string sign = std::string(is_negative ? "-" : c.plus ? "+" : c.blank ? " " : "") + prefix;
    const auto size = static_cast<std::int64_t>(sign.size() + digits.size());
    const auto blanks = static_cast<std::size_t>(std::max<std::int64_t>(c.width - size, 0));
    if (c.left) {
      out.append(sign).append(digits).append(blanks, ' ');
    } else if (c.zero) {
      out.append(sign).append(blanks, '0').append(digits);
    } else {
      out.append(blanks, ' ').append(sign).append(digits);
    }
  }

  void append_string(std::string& out, const Value& value, const Conversion& c, char type) {
    std::string text;
    if (type == 's') {
      append_text(text, value);
    } else {
      jinja::append_repr(text, value);
    }
    if (is_markup_) text = escape(runtime_, type == 's' ? value : Value(std::string_view(text))).text();
    append_padded(out, text, c);
  }

  void append_character(std::string& out, const Value& value, const Conversion& c) {
    std::string text;
    if (value.is_integral()) {
      const std::int64_t code = value.as_integer();
      if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) fail("%c arg not in range(0x110000)");
      unicode::append(text, static_cast<char32_t>(code));
    } else if (value.is_string() && length_of(value.text()) == 1) {
      text = value.text();
    } else {
      fail("%c requires int or char");
    }
    append_padded(out, text, c);
  }

  static void append_padded(std::string& out, std::string_view text, const Conversion& c) {
    if (c.precision >= 0) text = text.substr(0, offset_of(text, static_cast<std::size_t>(c.precision)));
    const auto size = static_cast<std::int64_t>(length_of(text));
    const auto blanks = static_cast<std::size_t>(std::max<std::int64_t>(c.width - size, 0));
    if (!c.left) out.append(blanks, ' ');
    out += text;
    if (c.left) out.append(blanks, ' ');
  }

  Runtime& runtime_;
  std::string_view format_;
  const Value& values_;
  bool is_markup_;
  std::size_t at_ = 0, used_ = 0;
};

}  // namespace

Value format_percent(Runtime& runtime, const Value& format, const Value& values) {
  runtime.spend_bytes(format.size);
  PercentFormatter formatter(runtime, format.text(), values, format.is_markup);
  return runtime.text(formatter.run(), format.is_markup);
}

}  // namespace heddle::jinja
