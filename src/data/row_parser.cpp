#include "data/row_parser.h"

#include <algorithm>
#include <array>
#include <unordered_set>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/text.h"

namespace heddle {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxDepth = 64;
constexpr std::int32_t kIgnoredLabel = -100;
constexpr std::array<std::string_view, 3> kFields = {"text", "input_ids", "labels"};
// What chat and instruction data sets call their fields.
constexpr std::array<std::string_view, 13> kChatFields = {
    "messages",    "conversations", "conversation", "prompt",   "completion", "chosen",  "rejected",
    "instruction", "output",        "response",     "question", "answer",     "dialogue"};

bool is_chat_field(std::string_view name) {
  return std::find(kChatFields.begin(), kChatFields.end(), name) != kChatFields.end();
}

/// At most 60 bytes of outside text, for a message on one line.
std::string shorten(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 60)) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte >= 0x20 && byte < 0x7F ? std::string(1, c) : fmt::format("\\x{:02x}", byte);
  }
  return text.size() > 60 ? out + "..." : out;
}

/// Takes the parser's events straight into a Row: long lists of ids never become JSON values.
class RowBuilder {
 public:
  explicit RowBuilder(std::int32_t vocab_size) : vocab_size_(vocab_size) {}

  Row take() { return std::move(row_); }
  const std::string& problem() const { return problem_; }
  /// Bytes read until the parser found an error of its own, if it did.
  std::size_t position() const { return position_; }

  bool null() { return value("null"); }
  bool boolean(bool v) { return value(v ? "true" : "false"); }
  bool number_integer(std::int64_t v) { return v >= 0 ? number_unsigned(static_cast<std::uint64_t>(v)) : id(v); }
  bool number_unsigned(std::uint64_t v) {
    return v > INT64_MAX ? bad_id(std::to_string(v)) : id(static_cast<std::int64_t>(v));
  }
  bool number_float(double, const std::string& literal) { return bad_id(shorten(literal)); }
  bool string(std::string& v) {
    if (levels_.size() == 1 && field_ == Field::text) {
      row_.text = std::move(v);
      return true;
    }
    return value("\"" + shorten(v) + "\"");
  }
  bool binary(json::binary_t&) { return false; }  // never sent for text

  bool start_object(std::size_t) {
    if (!levels_.empty() && !value("an object")) return false;
    return open(Level::Kind::object);
  }
  bool start_array(std::size_t) {
    if (levels_.empty()) return refuse("a row is a list; expected an object");
    if (levels_.size() == 1 && (field_ == Field::input_ids || field_ == Field::labels)) {
      ids().emplace();
    } else if (!value("a list")) {
      return false;
    }
    return open(Level::Kind::array);
  }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    if (!levels_.back().keys.insert(name).second) return refuse(fmt::format("duplicate key \"{}\"", shorten(name)));
    if (levels_.size() > 1) return true;
    field_ = name == "text"        ? Field::text
             : name == "input_ids" ? Field::input_ids
             : name == "labels"    ? Field::labels
                                   : Field::other;
    if (field_ == Field::other) row_.ignored_fields.push_back(std::move(name));
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 9: syntax error while ...; last read: '...'"
    std::string_view what = error.what();
    what.remove_prefix(std::min(what.find("] ") + 2, what.size()));
    if (what.starts_with("parse error")) what.remove_prefix(std::min(what.find(": ") + 2, what.size()));
    what = what.substr(0, what.find("; last read"));
    position_ = position;
    return refuse("not valid JSON: " + std::string(what.substr(0, 200)));
  }

 private:
  enum class Field { text, input_ids, labels, other };
  struct Level {
    enum class Kind { object, array } kind;
    std::unordered_set<std::string> keys;
  };

  std::optional<std::vector<std::int32_t>>& ids() { return field_ == Field::labels ? row_.labels : row_.input_ids; }
  std::string_view field_name() const { return kFields[static_cast<std::size_t>(field_)]; }
  bool in_ids() const { return levels_.size() == 2 && (field_ == Field::input_ids || field_ == Field::labels); }

  bool refuse(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }

  /// Any value that is no id and no text: sound only in fields that are ignored.
  bool value(std::string_view found) {
    if (levels_.empty()) return refuse(fmt::format("a row is {}; expected an object", found));
    if (in_ids()) return bad_id(found);
    if (levels_.size() > 1 || field_ == Field::other) return true;
    return refuse(fmt::format("{} is {}; expected {}", field_name(), found,
                              field_ == Field::text ? "a string" : "a list of whole numbers"));
  }

  bool bad_id(std::string_view found) {
    if (!in_ids()) return value(found);
    return refuse(fmt::format("{}[{}] is {}; expected {}", field_name(), ids()->size(), found, expected_ids()));
  }

  std::string expected_ids() const {
    return fmt::format("{}a whole number from 0 to {} (vocab_size - 1)", field_ == Field::labels ? "-100 or " : "",
                       vocab_size_ - 1);
  }

  bool id(std::int64_t v) {
    if (!in_ids()) return value(std::to_string(v));
    if ((v < 0 || v >= vocab_size_) && !(field_ == Field::labels && v == kIgnoredLabel)) {
      return bad_id(std::to_string(v));
    }
    ids()->push_back(static_cast<std::int32_t>(v));
    return true;
  }

  bool open(Level::Kind kind) {
    if (levels_.size() >= kMaxDepth) return refuse(fmt::format("nested deeper than {} levels", kMaxDepth));
    levels_.push_back({kind, {}});
    return true;
  }
  bool close() {
    levels_.pop_back();
    return true;
  }

  std::int32_t vocab_size_;
  Row row_;
  std::string problem_;
  std::size_t position_ = 0;
  Field field_ = Field::other;
  std::vector<Level> levels_;
};

/// Why a row with neither text nor ids is of no use.
std::string unknown_fields(const Row& row) {
  std::vector<std::string> found;
  std::string chat, hint;
  for (const auto& name : row.ignored_fields) {
    if (found.size() < 8) found.push_back(shorten(name));
    if (chat.empty() && is_chat_field(name)) chat = name;
    if (hint.empty()) hint = did_you_mean(name, kFields);
  }
  if (row.labels) found.emplace_back("labels");
  if (!chat.empty()) return fmt::format("rows with {} are not supported yet; expected text or input_ids", chat);
  if (found.empty()) return "the row is empty; expected text or input_ids";
  return fmt::format("no field to train on, found {}; expected text or input_ids{}", fmt::join(found, ", "), hint);
}

}  // namespace

Row parse_row(const Record& record, std::int32_t vocab_size) {
  check_utf8(record);
  // nlohmann's lexer takes a zero byte for the end of its input.
  if (const auto zero = record.text.find('\0'); zero != std::string_view::npos) {
    throw RowError(
        record.line + std::count(record.text.begin(), record.text.begin() + static_cast<std::ptrdiff_t>(zero), '\n'),
        "not valid JSON: a zero byte");
  }
  RowBuilder builder(vocab_size);
  if (!json::sax_parse(record.text.begin(), record.text.end(), &builder)) {
    const auto read = static_cast<std::ptrdiff_t>(std::min(builder.position(), record.text.size()));
    throw RowError(record.line + std::count(record.text.begin(), record.text.begin() + read, '\n'), builder.problem());
  }
  Row row = builder.take();
  if (row.text && row.input_ids) throw RowError(record.line, "both text and input_ids; expected one of them");
  if (row.text && row.labels) throw RowError(record.line, "labels without input_ids; a text has none");
  if (!row.text && !row.input_ids) throw RowError(record.line, unknown_fields(row));
  if (row.labels && row.labels->size() != row.input_ids->size()) {
    throw RowError(record.line, fmt::format("{} labels for {} input_ids; expected as many", row.labels->size(),
                                            row.input_ids->size()));
  }
  return row;
}

}  // namespace heddle
