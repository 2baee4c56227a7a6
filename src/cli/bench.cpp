#include <cstdio>

#include "base/error.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/number_check.h"
#include "planner/ceilings.h"
#include "planner/instruction_table.h"

namespace heddle::cli {
namespace {

struct Options {
  std::string run, folder = ".";
  int steps = 5;
  bool json = false;
};

void print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

void bench(const Options& options, const RunFile::Overrides& overrides) {
  const auto progress = [](std::string_view what) { note("bench: {}", what); };
  if (options.run.empty()) {
    if (!overrides.empty()) throw UsageError("bench: keys of a run file need a RUN");
    const Ceilings ceilings = measure_ceilings(options.folder, progress);
    cache_ceilings(ceilings);
    print(options.json ? ceilings_document(ceilings).dump(2) + "\n" : ceilings_text(ceilings));
    return;
  }
  const RunFile file = RunFile::load(options.run, overrides);
  file.require_data_keys();
  const InstructionTable table = measure_steps(file, options.steps, progress);
  print(options.json ? instruction_table_document(table).dump(2) + "\n" : instruction_table_text(table));
}

}  // namespace

void add_bench(CLI::App& program, Outcome&) {
  auto* command = program.add_subcommand("bench", "this machine's ceilings, or where the time of a run's steps goes");
  auto options = std::make_shared<Options>();
  command->add_option("RUN", options->run, "run file: time its steps by instruction; without it: the machine alone");
  command->add_option("--steps", options->steps, "optimizer steps to time, after one that does not count")
      ->check(whole_number(1, 1000000));
  command->add_option("--folder", options->folder, "where the disk is measured; default: the current folder");
  command->add_flag("--json", options->json, "print one JSON document");
  command->allow_extras();
  command->footer("--KEY VALUE sets any key of the run file.");
  command->callback([command, options] { bench(*options, parse_overrides(command->remaining())); });
}

}  // namespace heddle::cli
