#include "formats/json.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <memory>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error.h"

namespace heddle {
namespace {

/// Characters of a text, telling a shared place how far the parser has read: its callbacks get no position.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, const char** furthest) : at_(at), furthest_(furthest) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *furthest_ = ++at_;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator old = *this;
    ++*this;
    return old;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }

 private:
  const char* at_;
  const char** furthest_;
};

/// Receives the parser's events and builds the value. (nlohmann's own builder lets a later duplicate key win, and looks
/// each key up in time linear in the object's size.)
class Builder {
 public:
  Builder(std::string_view text, const char* const* furthest, const std::string& name, int max_depth)
      : text_(text), furthest_(furthest), name_(name), max_depth_(static_cast<std::size_t>(std::max(max_depth, 0))) {}

  Json take() { return std::move(root_); }

  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(Json::number_integer_t value) { return put(value); }
  bool number_unsigned(Json::number_unsigned_t value) { return put(value); }
  bool number_float(Json::number_float_t value, const std::string&) { return put(value); }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(Json::binary_t&) { return false; }  // never sent for text

  bool start_object(std::size_t) { return open(Json::value_t::object); }
  bool start_array(std::size_t) { return open(Json::value_t::array); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& key) {
    Level& level = levels_.back();
    auto& members = *level.value->get_ptr<Json::object_t*>();
    if (!note_key(level, members, key)) refuse(fmt::format("duplicate key \"{}\"", text_excerpt(key)));
    members.emplace_back(std::move(key), Json());
    level.slot = &members.back().second;
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: WHAT"
    std::string_view what = error.what();
    what.remove_prefix(std::min(what.find("] ") + 2, what.size()));
    if (what.starts_with("parse error")) what.remove_prefix(std::min(what.find(": ") + 2, what.size()));
    refuse(what);
  }

 private:
  struct Level {
    Json* value;                           // the open array or object
    Json* slot = nullptr;                  // where an object's next value goes
    std::unordered_set<std::string> keys;  // filled once the object has many keys
  };
  static constexpr std::size_t kFewKeys = 16;

  /// False if the object has the key already.
  static bool note_key(Level& level, const Json::object_t& members, const std::string& key) {
    if (members.size() < kFewKeys) {
      return std::none_of(members.begin(), members.end(), [&](const auto& member) { return member.first == key; });
    }
    if (level.keys.empty()) {
      for (const auto& member : members) level.keys.insert(member.first);
    }
    return level.keys.insert(key).second;
  }

  template <typename Value>
  Json* place(Value&& value) {
    if (levels_.empty()) {
      root_ = Json(std::forward<Value>(value));
      return &root_;
    }
    Level& level = levels_.back();
    if (level.slot != nullptr) {
      *level.slot = Json(std::forward<Value>(value));
      return level.slot;
    }
    auto& elements = *level.value->get_ptr<Json::array_t*>();
    elements.emplace_back(std::forward<Value>(value));
    return &elements.back();
  }

  template <typename Value>
  bool put(Value&& value) {
    place(std::forward<Value>(value));
    return true;
  }

  bool open(Json::value_t kind) {
    if (levels_.size() >= max_depth_) refuse(fmt::format("nested deeper than {} levels", max_depth_));
    Json* value = place(kind);
    levels_.push_back(Level{value, nullptr, {}});
    return true;
  }

  bool close() {
    levels_.pop_back();
    return true;
  }

  [[noreturn]] void refuse(std::string_view what) const {
    fail("{}: line {}: {}", name_, 1 + std::count(text_.data(), *furthest_, '\n'), text_excerpt(what, 240));
  }

  std::string_view text_;
  const char* const* furthest_;
  const std::string& name_;
  std::size_t max_depth_;
  Json root_;
  std::vector<Level> levels_;
};

/// The text with quotes around each NaN, Infinity and -Infinity that stands as a value outside strings. Lines stay.
std::string quote_non_finite(std::string_view text) {
  constexpr std::array<std::string_view, 3> kNames = {"NaN", "Infinity", "-Infinity"};
  const auto ends_value = [&](std::size_t at) {
    at = text.find_first_not_of(" \t\r\n", at);
    return at == std::string_view::npos || text[at] == ',' || text[at] == ']' || text[at] == '}';
  };
  std::string out;
  bool in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto rest = text.substr(at);
    const auto* name = std::find_if(kNames.begin(), kNames.end(),
                                    [&](std::string_view candidate) { return rest.starts_with(candidate); });
    if (!in_string && name != kNames.end() && ends_value(at + name->size())) {
      out.append("\"").append(*name).append("\"");
      at += name->size() - 1;
      continue;
    }
    if (text[at] == '"') in_string = !in_string;
    out += text[at];
    if (in_string && text[at] == '\\' && at + 1 < text.size()) out += text[++at];
  }
  return out;
}

}  // namespace

Json parse_json(std::string_view text, const std::string& name, int max_depth, NonFinite non_finite) {
  if (non_finite == NonFinite::as_text) return parse_json(quote_non_finite(text), name, max_depth);
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) fail("{}: line 1: empty; expected JSON", name);
  const char* furthest = text.data();
  Builder builder(text, &furthest, name, max_depth);
  const CountingIterator first(text.data(), &furthest), last(text.data() + text.size(), &furthest);
  HEDDLE_CHECK(Json::sax_parse(first, last, &builder));
  return builder.take();
}

Json read_json_file(const std::filesystem::path& path, std::size_t max_bytes) {
  std::error_code code;
  if (std::filesystem::is_directory(path, code)) fail("{}: is a folder; expected a JSON file", path.string());
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) fail("{}: cannot be opened: {}", path.string(), std::strerror(errno));
  std::string text;
  std::vector<char> block(std::size_t{1} << 16);
  while (const std::size_t count = std::fread(block.data(), 1, block.size(), file.get())) {
    if (count > max_bytes - text.size()) fail("{}: holds more than {} bytes of JSON", path.string(), max_bytes);
    text.append(block.data(), count);
  }
  if (std::ferror(file.get()) != 0) fail("{}: cannot be read: {}", path.string(), std::strerror(errno));
  return parse_json(text, path.string());
}

std::string text_excerpt(std::string_view text, std::size_t max_length) {
  std::string out;
  for (const char c : text) {
    if (out.size() >= max_length) return out + "...";
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", byte);
    }
  }
  return out;
}

std::string json_excerpt(const Json& value, std::size_t max_length) {
  if (value.is_structured() && value.size() > max_length) {
    return fmt::format("{} of {} elements", value.is_array() ? "an array" : "an object", value.size());
  }
  return text_excerpt(value.dump(-1, ' ', true, Json::error_handler_t::replace), max_length);
}

}  // namespace heddle
