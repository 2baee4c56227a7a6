#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/error.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/number_check.h"
#include "formats/json.h"
#include "train/run_setup.h"

namespace heddle::cli {
namespace {

constexpr std::int64_t kRowsShown = 10;

struct Options {
  std::string path;
  std::int64_t limit = -1;
  bool json = false;
};

/// What of a token would tear lines or steer a terminal is spelt as JSON spells it.
std::string printable(const std::string& token) {
  std::string out;
  for (const char c : token) {
    if (static_cast<unsigned char>(c) >= 0x20 && c != 0x7F) {
      out += c;
    } else {
      out += c == '\n' ? "\\n" : c == '\t' ? "\\t" : c == '\r' ? "\\r" : fmt::format("\\x{:02x}", c);
    }
  }
  return out;
}

std::string count(std::int64_t number) { return format_count(static_cast<std::uint64_t>(number)); }
std::string count(std::int64_t number, std::string_view noun) {
  return format_count(static_cast<std::uint64_t>(number), noun);
}

/// The tokens of a row. On a terminal targets are green and the others faint; elsewhere targets are in brackets.
void print_example(const Example& example, const Tokenizer* tokenizer) {
  const bool is_terminal = isatty(STDOUT_FILENO) == 1;
  const char* target = is_terminal ? "\033[32m%s\033[0m " : "[%s] ";
  const char* other = is_terminal ? "\033[2m%s\033[0m " : "%s ";
  const std::int64_t targets =
      std::count_if(example.labels.begin() + 1, example.labels.end(), [](std::int32_t label) { return label != -100; });
  std::printf("%s  %s, %s\n", example.source.c_str(),
              count(static_cast<std::int64_t>(example.input_ids.size()), "token").c_str(),
              count(targets, "target").c_str());
  for (std::size_t i = 0; i < example.input_ids.size(); ++i) {
    const std::int32_t id = example.input_ids[i];
    const std::string token = tokenizer != nullptr ? printable(tokenizer->id_to_token(id)) : std::to_string(id);
    const bool is_target = i > 0 && example.labels[i] != -100;  // the first token is no target
    std::printf(is_target ? target : other, token.c_str());
  }
  std::printf("\n\n");
}

/// Rows by length, in up to twelve classes of equal width, the widths 1, 2 or 5 times a power of ten.
void print_histogram(const Dataset& data) {
  constexpr std::int64_t kClasses = 12, kWidth = 50;
  std::int64_t tokens = 0, targets = 0, longest = 0;
  for (std::int64_t i = 0; i < data.num_examples(); ++i) {
    tokens += data.example_tokens(i);
    targets += data.example_targets(i);
    longest = std::max(longest, data.example_tokens(i));
  }
  std::printf("%s, %s, %s; longest row %s, mean %.1f\n", count(data.num_examples(), "row").c_str(),
              count(tokens, "token").c_str(), count(targets, "target").c_str(), count(longest, "token").c_str(),
              static_cast<double>(tokens) / static_cast<double>(data.num_examples()));
  std::int64_t step = 1;
  for (int i = 0; step * kClasses <= longest; ++i) step = i % 3 == 1 ? step / 2 * 5 : step * 2;
  std::array<std::int64_t, kClasses> rows{};
  for (std::int64_t i = 0; i < data.num_examples(); ++i)
    ++rows[static_cast<std::size_t>(data.example_tokens(i) / step)];
  const std::int64_t most = *std::max_element(rows.begin(), rows.end());
  for (std::int64_t i = 0; i <= longest / step; ++i) {
    const std::int64_t number = rows[static_cast<std::size_t>(i)];
    const auto bar = static_cast<std::size_t>((number * kWidth + most - 1) / most);  // one mark for a single row
    std::printf("%8s to %-8s %9s %s\n", count(i * step).c_str(), count((i + 1) * step - 1).c_str(),
                count(number).c_str(), std::string(bar, '#').c_str());
  }
  if (data.packed()) std::printf("packed into %s\n", count(data.num_rows(), "row").c_str());
}

void print_json(const Dataset& data, std::int64_t rows) {
  std::printf("[");
  for (std::int64_t i = 0; i < rows; ++i) {
    const Example example = data.example(i);
    const Json row = {{"input_ids", example.input_ids}, {"labels", example.labels}, {"source", example.source}};
    std::printf("%s%s", i > 0 ? ",\n" : "", row.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
  }
  std::printf("]\n");
}

void show(const Options& options, const RunFile::Overrides& overrides) {
  const RunFile file = RunFile::load(options.path, overrides);
  file.require_data_keys();
  const RunConfig& run = file.config();
  const ModelSource model = open_run_model(run);
  const RunData data = load_run_data(run, model);
  const std::int64_t all = data.train->num_examples();
  if (options.json) return print_json(*data.train, options.limit < 0 ? all : std::min(options.limit, all));
  const std::int64_t shown = std::min(options.limit < 0 ? kRowsShown : options.limit, all);
  for (std::int64_t i = 0; i < shown; ++i) print_example(data.train->example(i), data.tokenizer.get());
  if (shown < all) std::printf("... and %s more (--limit shows more)\n\n", count(all - shown, "row").c_str());
  print_histogram(*data.train);
}

}  // namespace

void add_data(CLI::App& program, Outcome&) {
  auto* command = program.add_subcommand("data", "rows as the trainer will see them, targets in colour");
  auto options = std::make_shared<Options>();
  command->add_option("RUN", options->path, "run file")->required();
  command->add_option("--limit", options->limit, "show this many rows (10; with --json all)")->check(whole_number(0));
  command->add_flag("--json", options->json, "print one JSON document");
  command->allow_extras();
  command->callback([command, options] { show(*options, parse_overrides(command->remaining())); });
}

}  // namespace heddle::cli
