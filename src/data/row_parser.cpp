#include "data/row_parser.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>

#include "base/text.h"
#include "data/preference_row.h"

namespace heddle {
namespace {

constexpr std::size_t kFieldsNamed = 8, kExcerpt = 60;
constexpr std::string_view kExpected =
    "text, input_ids, messages, conversations, prompt and completion, or instruction and output";

enum class Shape { input_ids, preference, messages, conversations, pair, alpaca, text };

/// A row has a shape if it has these fields.
struct ShapeRule {
  Shape shape;
  std::array<std::string_view, 2> fields;
};
/// The most specific first: many data sets carry a rendered `text` beside what it was rendered from.
constexpr std::array<ShapeRule, 8> kShapes = {{{Shape::input_ids, {"input_ids", ""}},
                                               {Shape::preference, {"chosen", "rejected"}},
                                               {Shape::preference, {"chosen_messages", "rejected_messages"}},
                                               {Shape::messages, {"messages", ""}},
                                               {Shape::conversations, {"conversations", ""}},
                                               {Shape::pair, {"prompt", "completion"}},
                                               {Shape::alpaca, {"instruction", "output"}},
                                               {Shape::text, {"text", ""}}}};

/// What other data sets call a field.
struct Synonyms {
  std::string_view field;
  std::array<std::string_view, 6> others;
};
constexpr std::array<Synonyms, 4> kSynonyms = {
    {{"messages", {"conversation", "dialogue", "dialog", "chat", "turns", "message"}},
     {"completion", {"answer", "response", "solution", "target", "output", "reply"}},
     {"prompt", {"question", "query", "problem", "instruction", "user", "input"}},
     {"text", {"content", "body", "document", "article", "code", "story"}}}};

bool has_fields(const RowFields& fields, const ShapeRule& rule) {
  return std::all_of(rule.fields.begin(), rule.fields.end(),
                     [&](std::string_view name) { return name.empty() || fields.has(name); });
}

std::optional<Shape> find_shape(const RowFields& fields, const ColumnNames& columns) {
  const auto find = [&](auto&& fits) {
    const auto* const found = std::find_if(kShapes.begin(), kShapes.end(), fits);
    return found == kShapes.end() ? std::nullopt : std::optional(found->shape);
  };
  const auto is_mapped = [&](std::string_view name) { return columns.contains(std::string(name)); };
  const auto mapped = find([&](const ShapeRule& rule) {
    return has_fields(fields, rule) && std::any_of(rule.fields.begin(), rule.fields.end(), is_mapped);
  });
  return mapped ? mapped : find([&](const ShapeRule& rule) { return has_fields(fields, rule); });
}

/// "; columns: {prompt: question, completion: answer} would name them", where the names say so.
std::string suggest_columns(const RowFields& fields) {
  const auto column_for = [&](const Synonyms& synonyms) -> std::string {
    for (const auto& [ours, name] : fields.names) {
      const bool fits = std::find(synonyms.others.begin(), synonyms.others.end(), name) != synonyms.others.end();
      if (ours == synonyms.field || fits) return name;
    }
    return "";
  };
  const std::string messages = column_for(kSynonyms[0]), text = column_for(kSynonyms[3]);
  const std::string completion = column_for(kSynonyms[1]), prompt = column_for(kSynonyms[2]);
  if (!messages.empty()) return fmt::format("; columns: {{messages: {}}} would name it", messages);
  if (fields.has("instruction") && !completion.empty() && completion != "output") {
    return fmt::format("; columns: {{output: {}}} would name it", completion);
  }
  if (!prompt.empty() && !completion.empty()) {
    return fmt::format("; columns: {{prompt: {}, completion: {}}} would name them", prompt, completion);
  }
  return text.empty() ? "" : fmt::format("; columns: {{text: {}}} would name it", text);
}

/// "; it has no chat (columns: messages is chat)": of a column that is named and not there.
std::string name_missing_column(const RowFields& fields, const ColumnNames& columns) {
  for (const auto& [ours, column] : columns) {
    const bool is_there = std::any_of(fields.names.begin(), fields.names.end(),
                                      [&name = column](const auto& field) { return field.second == name; });
    if (!is_there) return fmt::format("; it has no {0} (columns: {1} is {0})", text_excerpt(column, kExcerpt), ours);
  }
  return "";
}

/// Why a row that has no shape is of no use.
std::string unknown_fields(const RowFields& fields, const ColumnNames& columns) {
  std::vector<std::string> found;
  std::string hint = name_missing_column(fields, columns);
  if (hint.empty()) hint = suggest_columns(fields);
  constexpr std::array<std::string_view, 5> kCandidates = {"text", "input_ids", "messages", "conversations", "prompt"};
  for (const auto& [ours, name] : fields.names) {
    if (found.size() < kFieldsNamed) found.push_back(text_excerpt(name, kExcerpt));
    if (hint.empty()) hint = did_you_mean(name, kCandidates);
  }
  if (found.empty()) return fmt::format("the row is empty; expected {}", kExpected);
  return fmt::format("no field to train on, found {}; expected {}{}", fmt::join(found, ", "), kExpected, hint);
}

/// A row with a verdict on its answer: training on it as on any other would teach the bad ones too.
void refuse_verdicts(const RowFields& fields, const ColumnNames& columns, std::string_view field) {
  const Json* label = fields.find("label");
  if (label == nullptr || !label->is_boolean() || columns.contains(std::string(field))) return;
  fail(
      "{} with a label that is true or false: unpaired preferences (KTO), which this version does not train on; "
      "columns: {{{}: {}}} trains on all of them alike",
      field, field, field);
}

class RowMaker {
 public:
  RowMaker(RowFields& fields, const RowRules& rules) : fields_(fields), rules_(rules) {}

  Row make() {
    const auto shape = find_shape(fields_, rules_.columns);
    if (fields_.labels && shape != Shape::input_ids) {
      if (shape == Shape::text) fail("labels without input_ids; a text has none");
      if (!shape) fail("{}", unknown_fields(fields_, rules_.columns));
    }
    if (!shape) fail("{}", unknown_fields(fields_, rules_.columns));
    if (rules_.preference && *shape != Shape::preference)
      fail("no preference pair, which loss_type asks for; expected chosen and rejected");
    switch (*shape) {
      case Shape::input_ids: make_ids(); break;
      case Shape::preference: make_preference(); break;
      case Shape::messages: make_messages("messages"); break;
      case Shape::conversations: make_messages("conversations"); break;
      case Shape::pair: make_pair(); break;
      case Shape::alpaca: make_alpaca(); break;
      case Shape::text: make_text(); break;
    }
    for (auto& [ours, name] : fields_.names) {
      if (std::find(used_.begin(), used_.end(), ours) == used_.end()) row_.ignored_fields.push_back(std::move(name));
    }
    return std::move(row_);
  }

 private:
  void use(std::initializer_list<std::string_view> names) { used_.insert(used_.end(), names); }  // literals

  void make_text() {
    if (!fields_.text) fail("{}", fields_.text_problem);
    row_.text = std::move(fields_.text);
    use({"text"});
  }

  void make_ids() {
    if (fields_.text) fail("both text and input_ids; expected one of them");
    if (!fields_.input_ids) fail("input_ids is null; expected a list of whole numbers");
    if (fields_.labels && fields_.labels->size() != fields_.input_ids->size()) {
      fail("{} labels for {} input_ids; expected as many", fields_.labels->size(), fields_.input_ids->size());
    }
    row_.format = RowFormat::input_ids;
    row_.input_ids = std::move(fields_.input_ids);
    row_.labels = std::move(fields_.labels);
    use({"input_ids", "labels"});
  }

  void make_messages(std::string_view field) {
    refuse_verdicts(fields_, rules_.columns, field);
    const Json* list = fields_.find(field);
    if (list == nullptr) fail("{} is null; expected a list of messages", field);
    bool is_sharegpt = false;
    row_.conversation = read_messages(fields_, *list, std::string(field), is_sharegpt);
    row_.format = is_sharegpt ? RowFormat::sharegpt : RowFormat::messages;
    use({field, "tools", "chat_template_kwargs", "system"});
  }

  void make_pair() {
    refuse_verdicts(fields_, rules_.columns, "completion");
    const Json* prompt = fields_.find("prompt");
    const Json* completion = fields_.find("completion");
    const auto is = [&](auto&& test) {
      return prompt != nullptr && completion != nullptr && test(*prompt) && test(*completion);
    };
    if (is([](const Json& value) { return value.is_string(); })) {
      row_.format = RowFormat::pair;
      row_.pair = {prompt->get<std::string>(), completion->get<std::string>()};
      use({"prompt", "completion"});
    } else if (is([](const Json& value) { return value.is_array(); })) {
      row_.format = RowFormat::chat_pair;
      row_.conversation = read_chat_pair(fields_);
      use({"prompt", "completion", "tools", "chat_template_kwargs"});
    } else {
      const auto show = [](const Json* value) { return value == nullptr ? "null" : json_excerpt(*value, 30); };
      fail("prompt is {} and completion is {}; expected two strings, or two lists of messages", show(prompt),
           show(completion));
    }
  }

  void make_alpaca() {
    row_.format = RowFormat::alpaca;
    if (rules_.has_chat_template) {
      row_.conversation = read_alpaca(fields_);
    } else {
      row_.pair = alpaca_texts(fields_);
    }
    use({"instruction", "input", "output", "history", "system", "tools", "chat_template_kwargs"});
  }

  /// Read like any other row before it is refused, so that a fault in it is named first.
  void make_preference() {
    PreferenceRow pair = read_preference(fields_, rules_.has_chat_template);
    if (!rules_.preference)
      fail("a preference pair (chosen, rejected), and loss_type is nll; expected loss_type: sigmoid (DPO), or {}",
           kExpected);
    row_.format = pair.chosen ? RowFormat::chat_preference : RowFormat::preference;
    row_.conversation = std::move(pair.chosen);
    row_.rejected_conversation = std::move(pair.rejected);
    row_.pair = std::move(pair.chosen_text);
    row_.rejected_pair = std::move(pair.rejected_text);
    used_ = std::move(pair.used);
  }

  RowFields& fields_;
  const RowRules& rules_;
  Row row_;
  std::vector<std::string_view> used_;
};

/// What a field that an error begins with is called in the file.
std::string name_in_file(std::string_view error, const ColumnNames& columns) {
  for (const auto& [ours, column] : columns) {
    const bool is_named = error.starts_with(ours) && error.find_first_of(" [", ours.size()) == ours.size();
    if (is_named && ours != column) return fmt::format(" (columns: {} is {})", ours, text_excerpt(column, kExcerpt));
  }
  return "";
}

}  // namespace

std::string_view describe(RowFormat format) {
  switch (format) {
    case RowFormat::text: return "texts";
    case RowFormat::input_ids: return "token ids";
    case RowFormat::messages: return "conversations (messages)";
    case RowFormat::sharegpt: return "ShareGPT conversations (from, value)";
    case RowFormat::alpaca: return "Alpaca instructions (instruction, input, output)";
    case RowFormat::pair: return "prompts and completions";
    case RowFormat::chat_pair: return "prompts and completions of messages";
    case RowFormat::preference: return "preference pairs (chosen, rejected)";
    case RowFormat::chat_preference: return "preference pairs of messages (chosen, rejected)";
  }
  return "";
}

Row parse_row(const Record& record, const RowRules& rules) {
  RowFields fields = read_fields(record, rules.vocab_size, rules.columns);
  try {
    return RowMaker(fields, rules).make();
  } catch (const RowError&) {
    throw;
  } catch (const Error& error) {
    throw RowError(record.line, error.what() + name_in_file(error.what(), rules.columns));
  }
}

}  // namespace heddle
