#include <cstdio>
#include <memory>
#include <vector>

#include "base/error.h"
#include "cli/commands.h"
#include "data/chat_template.h"
#include "data/record_stream.h"
#include "data/row_records.h"
#include "formats/file_reader.h"
#include "formats/json.h"
#include "train/run_setup.h"

namespace heddle::cli {
namespace {

struct Options {
  std::string model, file;
  bool add_generation_prompt = false, json = false;
};

const Json& member(const Json& row, const char* key) {
  static const Json kNothing;
  const auto at = row.find(key);
  return at != row.end() ? *at : kNothing;
}

/// {"text": ...} or {"error": ...}
Json render_row(const ChatTemplate& chat_template, const Record& record, const Options& options) {
  try {
    const Json row = parse_json(record.text, "row");
    if (!row.is_object() || !row.contains("messages"))
      fail("the row is {}; expected an object with messages", json_excerpt(row));
    auto rendering = chat_template.render(member(row, "messages"), member(row, "tools"),
                                          member(row, "chat_template_kwargs"), options.add_generation_prompt);
    return {{"text", std::move(rendering.text)}};
  } catch (const Error& error) {
    return {{"error", error.what()}};
  }
}

/// Prints a row as its answer comes.
void print_row(const Json& answer, const Record& record, const Options& options, bool is_first) {
  std::string text;
  if (options.json) {
    text = (is_first ? "" : ",\n") + answer.dump(-1, ' ', false, Json::error_handler_t::replace);
  } else if (answer.contains("text")) {
    text = answer["text"].get<std::string>() + "\n";
  } else {
    std::fflush(stdout);
    const std::string error = fmt::format("{}:{}: {}\n", options.file, record.line, answer["error"].get<std::string>());
    std::fwrite(error.data(), 1, error.size(), stderr);
  }
  std::fwrite(text.data(), 1, text.size(), stdout);
}

int render(const Options& options) {
  const auto chat_template = open_chat_template("", options.model);
  if (!chat_template)
    fail("{}: there is no chat template: no chat_template.jinja, and no chat_template in tokenizer_config.json",
         options.model);
  const auto format = data_format(options.file);
  if (format == DataFormat::plain_text) fail("{}: expected rows (.jsonl, .json or .parquet)", options.file);
  const FileReader file(options.file);
  RecordStream stream(file, format, {});

  bool has_failed = false, is_first = true;
  if (options.json) std::fputs("[", stdout);
  try {
    for (std::vector<Record> records; stream.next_batch(records);) {
      for (const Record& record : records) {
        const Json answer = render_row(*chat_template, record, options);
        has_failed = has_failed || answer.contains("error");
        print_row(answer, record, options, is_first);
        is_first = false;
      }
    }
  } catch (const RowError& error) {
    fail("{}:{}: {}", options.file, error.line(), error.what());
  }
  if (options.json) std::fputs("]\n", stdout);
  if (!has_failed) return 0;
  fail("{}: the template refused some rows", options.file);
}

}  // namespace

void add_render(CLI::App& program, Outcome& outcome) {
  auto* command = program.add_subcommand("render", "a model's chat template over the rows of a file");
  auto options = std::make_shared<Options>();
  command->add_option("MODEL", options->model, "model folder, for its chat template")->required();
  command->add_option("FILE", options->file, "rows with messages: JSON Lines, a JSON array or Parquet")->required();
  command->add_flag("--add_generation_prompt", options->add_generation_prompt,
                    "what begins an assistant's turn, at the end");
  command->add_flag("--json", options->json, "print one JSON document");
  command->callback([options, &outcome] { outcome.exit_code = render(*options); });
}

}  // namespace heddle::cli
