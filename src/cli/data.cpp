#include <unistd.h>

#include <cstdio>

#include "base/error.h"
#include "cli/commands.h"
#include "formats/json.h"
#include "train/run_setup.h"

namespace heddle::cli {
namespace {

struct Options {
  std::string path;
  std::int64_t limit = -1;
  bool json = false;
};

/// The tokens of a row. On a terminal targets are green and the others faint; elsewhere the others are in parentheses.
void print_example(const Example& example, const Tokenizer* tokenizer) {
  const bool is_terminal = isatty(STDOUT_FILENO) == 1;
  const char* target = is_terminal ? "\033[32m%s\033[0m " : "%s ";
  const char* other = is_terminal ? "\033[2m%s\033[0m " : "(%s) ";
  std::printf("%s\n", example.source.c_str());
  for (std::size_t i = 0; i < example.input_ids.size(); ++i) {
    const std::int32_t id = example.input_ids[i];
    const std::string token = tokenizer != nullptr ? tokenizer->id_to_token(id) : std::to_string(id);
    const bool is_target = i > 0 && example.labels[i] != -100;  // the first token is no target
    std::printf(is_target ? target : other, token.c_str());
  }
  std::printf("\n");
}

void show(const Options& options, const RunFile::Overrides& overrides) {
  const RunFile file = RunFile::load(options.path, overrides);
  file.require_supported();
  const RunConfig& run = file.config();
  if (run.train_file.empty()) fail("{}: train_file is absent; `data` shows its rows", options.path);
  const ModelSource model = open_run_model(run);
  const RunData data = load_run_data(run, model);
  const std::int64_t count =
      options.limit < 0 ? data.train->num_examples() : std::min(options.limit, data.train->num_examples());
  Json rows = Json::array();
  for (std::int64_t i = 0; i < count; ++i) {
    const Example example = data.train->example(i);
    if (options.json) {
      rows.push_back({{"input_ids", example.input_ids}, {"labels", example.labels}, {"source", example.source}});
    } else {
      print_example(example, data.tokenizer.get());
    }
  }
  if (options.json) std::printf("%s\n", rows.dump().c_str());
}

}  // namespace

void add_data(CLI::App& program, Outcome&) {
  auto* command = program.add_subcommand("data", "rows as the trainer will see them, targets in colour");
  auto options = std::make_shared<Options>();
  command->add_option("RUN", options->path, "run file")->required();
  command->add_option("--limit", options->limit, "show this many rows")->check(CLI::NonNegativeNumber);
  command->add_flag("--json", options->json, "print one JSON document");
  command->allow_extras();
  command->callback([command, options] { show(*options, parse_overrides(command->remaining())); });
}

}  // namespace heddle::cli
