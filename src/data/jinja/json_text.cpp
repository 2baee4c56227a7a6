// json.dumps() of Python, for the filter tojson.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <vector>

#include "data/jinja/characters.h"
#include "data/jinja/print.h"
#include "data/jinja/runtime.h"

namespace heddle::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, std::string& out, const JsonStyle& style)
      : runtime_(runtime), out_(out), style_(style) {}

  void write(const Value& value, int depth) {
    check_nesting(depth);
    check_printed(out_);
    switch (value.kind) {
      case Kind::none: out_ += "null"; return;
      case Kind::boolean: out_ += value.boolean ? "true" : "false"; return;
      case Kind::integer: fmt::format_to(std::back_inserter(out_), "{}", value.integer); return;
      case Kind::floating: write_number(value.floating); return;
      case Kind::string: write_text(value.text()); return;
      case Kind::list:
      case Kind::tuple: write_items(value.items(), depth); return;
      case Kind::dict: write_dict(*value.dict, depth); return;
      default: fail("Object of type {} is not JSON serializable", type_name(value));
    }
  }

 private:
  void write_number(double number) {
    if (std::isnan(number)) {
      out_ += "NaN";
    } else if (std::isinf(number)) {
      out_ += number > 0 ? "Infinity" : "-Infinity";
    } else {
      append_number(out_, number);
    }
  }

  void write_unit(std::uint32_t unit) { fmt::format_to(std::back_inserter(out_), "\\u{:04x}", unit); }

  /// One character that does not stand for itself.
  void write_escape(std::uint32_t code) {
    switch (code) {
      case '"': out_ += "\\\""; return;
      case '\\': out_ += "\\\\"; return;
      case '\n': out_ += "\\n"; return;
      case '\r': out_ += "\\r"; return;
      case '\t': out_ += "\\t"; return;
      case '\f': out_ += "\\f"; return;
      case '\b': out_ += "\\b"; return;
      default: break;
    }
    if (code < 0x10000) {
      write_unit(code);
    } else {
      write_unit(0xD800 + ((code - 0x10000) >> 10));
      write_unit(0xDC00 + ((code - 0x10000) & 0x3FF));
    }
  }

  void write_text(std::string_view text) {
    out_ += '"';
    std::size_t plain = 0;  // start of what is not written yet
    for (std::size_t at = 0; at < text.size();) {
      const auto byte = static_cast<unsigned char>(text[at]);
      const bool is_plain = byte >= 0x7F ? !style_.ensure_ascii : byte >= 0x20 && byte != '"' && byte != '\\';
      if (is_plain) {
        ++at;
        continue;
      }
      out_.append(text, plain, at - plain);
      const auto [code, length] = unicode::decode(text.data() + at);
      write_escape(static_cast<std::uint32_t>(code));
      at += static_cast<std::size_t>(length);
      plain = at;
    }
    out_.append(text, plain);
    out_ += '"';
  }

  void new_line(int depth) {
    if (!style_.has_lines) return;
    out_ += '\n';
    for (int i = 0; i < depth; ++i) out_ += style_.indent;
  }

  void write_items(std::span<const Value> items, int depth) {
    out_ += '[';
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      new_line(depth + 1);
      write(items[i], depth + 1);
    }
    if (!items.empty()) new_line(depth);
    out_ += ']';
  }

  void write_key(const Value& key) {
    if (key.is_string()) return write_text(key.text());
    if (!key.is_number() && !key.is(Kind::none)) {
      fail("keys must be str, int, float, bool or None, not {}", type_name(key));
    }
    out_ += '"';
    write(key, 0);
    out_ += '"';
  }

  void write_dict(const Dict& dict, int depth) {
    std::vector<Entry> sorted;
    std::span<const Entry> entries = dict.entries;
    if (style_.sort_keys) {
      sorted.assign(entries.begin(), entries.end());
      std::stable_sort(sorted.begin(), sorted.end(),
                       [this](const Entry& a, const Entry& b) { return is_less(runtime_, a.key, b.key); });
      entries = sorted;
    }
    out_ += '{';
    bool is_first = true;
    for (const auto& [key, value] : entries) {
      if (!is_first) out_ += style_.item_separator;
      is_first = false;
      new_line(depth + 1);
      write_key(key);
      out_ += style_.key_separator;
      write(value, depth + 1);
    }
    if (!entries.empty()) new_line(depth);
    out_ += '}';
  }

  Runtime& runtime_;
  std::string& out_;
  const JsonStyle& style_;
};

}  // namespace

void append_json(Runtime& runtime, std::string& out, const Value& value, const JsonStyle& style) {
  JsonWriter(runtime, out, style).write(value, 0);
}

}  // namespace heddle::jinja
