#include "data/row_fields.h"

#include <algorithm>
#include <array>
#include <unordered_set>

#include "base/text.h"

namespace heddle {
namespace {

constexpr std::size_t kMaxDepth = 64, kExcerpt = 60;
constexpr std::int32_t kIgnoredLabel = -100;
// text, input_ids and labels first: they are read without a JSON value between.
constexpr std::array<std::string_view, 19> kFields = {
    "text",   "input_ids",  "labels", "messages", "conversations",   "tools",    "chat_template_kwargs",
    "prompt", "completion", "system", "chosen",   "chosen_messages", "rejected", "rejected_messages",
    "label",  "history",    "input",  "output",   "instruction"};

std::string excerpt(std::string_view text) { return text_excerpt(text, kExcerpt); }

/// Takes the parser's events straight into RowFields: long lists of ids never become JSON values.
class FieldReader {
 public:
  FieldReader(std::int32_t vocab_size, const ColumnNames& columns) : vocab_size_(vocab_size), columns_(&columns) {}

  RowFields take() { return std::move(fields_); }
  const std::string& problem() const { return problem_; }
  /// Bytes read until the parser found an error of its own, if it did.
  std::size_t position() const { return position_; }

  bool null() { return value(nullptr, "null"); }
  bool boolean(bool v) { return value(v, v ? "true" : "false"); }
  bool number_integer(std::int64_t v) { return v >= 0 ? number_unsigned(static_cast<std::uint64_t>(v)) : id(v); }
  bool number_unsigned(std::uint64_t v) {
    if (v > INT64_MAX) return in_ids() ? bad_id(std::to_string(v)) : value(v, std::to_string(v));
    return id(static_cast<std::int64_t>(v));
  }
  bool number_float(double v, const std::string& literal) {
    return in_ids() ? bad_id(excerpt(literal)) : value(v, excerpt(literal));
  }
  bool string(std::string& v) {
    if (levels_.size() == 1 && field_ == Field::text) {
      fields_.text = std::move(v);
      return true;
    }
    if (keeps_value()) return keep(Json(std::move(v)));
    return value(nullptr, "\"" + excerpt(v) + "\"");
  }
  bool binary(Json::binary_t&) { return false; }  // never sent for text

  bool start_object(std::size_t) {
    if (!levels_.empty() && !value(Json::object(), "an object")) return false;
    return open();
  }
  bool start_array(std::size_t) {
    if (levels_.empty()) return refuse("a row is a list; expected an object");
    if (levels_.size() == 1 && (field_ == Field::input_ids || field_ == Field::labels)) {
      ids().emplace();
    } else if (!value(Json::array(), "a list")) {
      return false;
    }
    return open();
  }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    if (!levels_.back().keys.insert(name).second) return refuse(fmt::format("duplicate key \"{}\"", excerpt(name)));
    if (levels_.size() > 1) {
      if (levels_.back().target != nullptr) levels_.back().member = std::move(name);
      return true;
    }
    std::string ours = our_name(name);
    field_ = ours == "text"        ? Field::text
             : ours == "input_ids" ? Field::input_ids
             : ours == "labels"    ? Field::labels
             : ours.empty()        ? Field::unknown
                                   : Field::known;
    fields_.names.emplace_back(std::move(ours), std::move(name));
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
  enum class Field { text, input_ids, labels, known, unknown };
  struct Level {
    std::unordered_set<std::string> keys;
    Json* target = nullptr;  // where its values are kept, if they are
    std::string member;      // the key read last, of an object that is kept
  };

  std::string our_name(const std::string& name) const {
    for (const auto& [ours, column] : *columns_) {
      if (column == name) return ours;
    }
    return is_row_field(name) && !columns_->contains(name) ? name : "";
  }

  std::optional<std::vector<std::int32_t>>& ids() {
    return field_ == Field::labels ? fields_.labels : fields_.input_ids;
  }
  std::string_view field_name() const { return kFields[static_cast<std::size_t>(field_)]; }
  bool in_ids() const { return levels_.size() == 2 && (field_ == Field::input_ids || field_ == Field::labels); }
  bool keeps_value() const {
    return levels_.size() == 1 ? field_ == Field::known : levels_.size() > 1 && levels_.back().target != nullptr;
  }

  bool refuse(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }

  /// Sound only where keeps_value().
  bool keep(Json v) {
    if (levels_.size() == 1) {
      kept_ = &(fields_.values[fields_.names.back().first] = std::move(v));
      return true;
    }
    Level& level = levels_.back();
    if (level.target->is_array()) {
      level.target->push_back(std::move(v));
      kept_ = &level.target->back();
    } else {
      kept_ = &((*level.target)[level.member] = std::move(v));
    }
    return true;
  }

  /// Any value that is no id and no text.
  bool value(Json v, std::string_view found) {
    kept_ = nullptr;
    if (levels_.empty()) return refuse(fmt::format("a row is {}; expected an object", found));
    if (in_ids()) return bad_id(found);
    if (keeps_value()) return keep(std::move(v));
    if (levels_.size() > 1 || field_ == Field::unknown) return true;
    if (field_ == Field::text) {
      fields_.text_problem = fmt::format("text is {}; expected a string", found);
      return true;
    }
    return refuse(fmt::format("{} is {}; expected a list of whole numbers", field_name(), found));
  }

  bool bad_id(std::string_view found) {
    return refuse(fmt::format("{}[{}] is {}; expected {}", field_name(), ids()->size(), found, expected_ids()));
  }

  std::string expected_ids() const {
    return fmt::format("{}a whole number from 0 to {} (vocab_size - 1)", field_ == Field::labels ? "-100 or " : "",
                       vocab_size_ - 1);
  }

  bool id(std::int64_t v) {
    if (!in_ids()) return value(v, std::to_string(v));
    if ((v < 0 || v >= vocab_size_) && !(field_ == Field::labels && v == kIgnoredLabel)) {
      return bad_id(std::to_string(v));
    }
    ids()->push_back(static_cast<std::int32_t>(v));
    return true;
  }

  bool open() {
    if (levels_.size() >= kMaxDepth) return refuse(fmt::format("nested deeper than {} levels", kMaxDepth));
    Level level;
    level.target = levels_.empty() ? nullptr : std::exchange(kept_, nullptr);
    levels_.push_back(std::move(level));
    return true;
  }
  bool close() {
    levels_.pop_back();
    return true;
  }

  std::int32_t vocab_size_;
  const ColumnNames* columns_;
  RowFields fields_;
  std::string problem_;
  std::size_t position_ = 0;
  Field field_ = Field::unknown;
  std::vector<Level> levels_;
  Json* kept_ = nullptr;  // the value kept last: a list or object that is opened next
};

}  // namespace

bool is_row_field(std::string_view name) { return std::find(kFields.begin(), kFields.end(), name) != kFields.end(); }

void check_columns(const ColumnNames& columns) {
  std::unordered_set<std::string> taken;
  for (const auto& [ours, column] : columns) {
    if (!is_row_field(ours)) {
      fail("columns: {} is no field of rows; expected {}{}", text_excerpt(ours), fmt::join(kFields, ", "),
           did_you_mean(ours, kFields));
    }
    if (!taken.insert(column).second) fail("columns: {} is named twice; expected one field for it", column);
  }
}

bool RowFields::has(std::string_view name) const {
  return std::any_of(names.begin(), names.end(), [&](const auto& field) { return field.first == name; });
}

const Json* RowFields::find(std::string_view name) const {
  const auto found = values.find(name);
  return found == values.end() || found->is_null() ? nullptr : &*found;
}

RowFields read_fields(const Record& record, std::int32_t vocab_size, const ColumnNames& columns) {
  check_utf8(record);
  const auto line_at = [&](std::size_t bytes) {
    const auto end = record.text.begin() + static_cast<std::ptrdiff_t>(std::min(bytes, record.text.size()));
    return record.line + std::count(record.text.begin(), end, '\n');
  };
  // nlohmann's lexer takes a zero byte for the end of its input.
  if (const auto zero = record.text.find('\0'); zero != std::string_view::npos) {
    throw RowError(line_at(zero), "not valid JSON: a zero byte");
  }
  FieldReader reader(vocab_size, columns);
  if (!Json::sax_parse(record.text.begin(), record.text.end(), &reader)) {
    throw RowError(line_at(reader.position()), reader.problem());
  }
  return reader.take();
}

}  // namespace heddle
