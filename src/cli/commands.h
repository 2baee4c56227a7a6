#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "config/run_config.h"

/// One function for each command: adds it to the program's command line. What it does when chosen returns the exit
/// code.
namespace heddle::cli {

/// The exit code of the command that was chosen, and for `supervise` the words behind --: another program's, as they
/// are (CLI11 would split some).
struct Outcome {
  int exit_code = 0;
  std::vector<std::string> behind_dashes;
};

void add_train(CLI::App& program, Outcome& outcome);
void add_plan(CLI::App& program, Outcome& outcome);
void add_eval(CLI::App& program, Outcome& outcome);
void add_generate(CLI::App& program, Outcome& outcome);
void add_tokenize(CLI::App& program, Outcome& outcome);
void add_config(CLI::App& program, Outcome& outcome);
void add_data(CLI::App& program, Outcome& outcome);
void add_inspect(CLI::App& program, Outcome& outcome);
void add_bench(CLI::App& program, Outcome& outcome);
void add_export(CLI::App& program, Outcome& outcome);
void add_import(CLI::App& program, Outcome& outcome);
void add_supervise(CLI::App& program, Outcome& outcome);
void add_quantize(CLI::App& program, Outcome& outcome);
void add_render(CLI::App& program, Outcome& outcome);

/// "--KEY VALUE" and "--KEY=VALUE" of the command line, as overrides of the run file. Throws UsageError for others.
RunFile::Overrides parse_overrides(const std::vector<std::string>& words);

}  // namespace heddle::cli
