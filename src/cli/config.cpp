#include <cstdio>

#include "cli/commands.h"
#include "formats/json.h"

namespace heddle::cli {

void add_config(CLI::App& program, Outcome&) {
  struct Options {
    std::string path;
    bool json = false;
  };
  auto* command = program.add_subcommand("config", "the effective configuration of a run, each value with its origin");
  auto options = std::make_shared<Options>();
  command->add_option("RUN", options->path, "run file")->required();
  command->add_flag("--json", options->json, "print one JSON document");
  command->allow_extras();
  command->callback([command, options] {
    const auto effective = RunFile::load(options->path, parse_overrides(command->remaining())).effective();
    if (options->json) {
      std::printf("%s\n", effective.dump(2).c_str());
      return;
    }
    for (const auto& [key, value] : effective.items()) {
      std::printf("%-32s %-24s %s\n", key.c_str(), value.at("value").dump().c_str(),
                  value.at("origin").get<std::string>().c_str());
    }
  });
}

}  // namespace heddle::cli
