#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/commands.h"

namespace heddle::cli {
namespace {

/// CLI11 would say that a command is missing, whatever stands in its place.
void require_command(const CLI::App& program, int argc, char** argv) {
  const std::string_view first = argc > 1 ? argv[1] : "";
  if (first.starts_with('-')) return;
  std::vector<std::string_view> names;
  for (const auto* command : program.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  if (std::find(names.begin(), names.end(), first) != names.end()) return;
  const auto expected = fmt::format("expected one of {} (heddle --help)", fmt::join(names, ", "));
  if (argc < 2) throw UsageError(fmt::format("a command is missing; {}", expected));
  throw UsageError(fmt::format("{} is no command; {}{}", first, expected, did_you_mean(first, names)));
}

/// CLI11 would list what it does not know in reverse.
std::string text_of_extras(const CLI::App& program) {
  for (const auto* command : program.get_subcommands()) {
    const auto words = command->remaining();
    if (words.empty()) continue;
    const auto named =
        std::find_if(words.begin(), words.end(), [](const auto& word) { return word.starts_with("--"); });
    if (named == words.end()) return fmt::format("{}: {} is one word too many", command->get_name(), words.front());
    std::vector<std::string> options;
    for (const auto* option : command->get_options()) {
      for (const auto& name : option->get_lnames()) options.push_back("--" + name);
    }
    const std::string name = named->substr(0, named->find('='));
    const std::vector<std::string_view> known(options.begin(), options.end());
    return fmt::format("{}: unknown option {}{}", command->get_name(), name, did_you_mean(name, known));
  }
  return "unknown words";
}

/// What was printed may lie in a buffer still. A full disk must not look like success.
void finish_output() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    fail("standard output: cannot be written: {}", std::strerror(errno));
}

}  // namespace
}  // namespace heddle::cli

int main(int argc, char** argv) {
  CLI::App program{"Heddle trains and fine-tunes large language models in as little memory as possible."};
  program.name("heddle");
  program.set_version_flag("--version", "heddle " HEDDLE_VERSION);
  program.require_subcommand(1);
  heddle::cli::Outcome outcome;
  for (auto* add : {heddle::cli::add_train, heddle::cli::add_plan, heddle::cli::add_eval, heddle::cli::add_generate,
                    heddle::cli::add_tokenize, heddle::cli::add_config, heddle::cli::add_data, heddle::cli::add_inspect,
                    heddle::cli::add_export, heddle::cli::add_import, heddle::cli::add_quantize,
                    heddle::cli::add_supervise, heddle::cli::add_bench, heddle::cli::add_render}) {
    add(program, outcome);
  }
  char** end = argv + argc;
  if (argc > 1 && std::string_view(argv[1]) == "supervise") {
    end = std::find(argv, argv + argc, std::string_view("--"));
    if (end != argv + argc) outcome.behind_dashes.assign(end + 1, argv + argc);
  }
  try {
    heddle::cli::require_command(program, argc, argv);
    program.parse(static_cast<int>(end - argv), argv);
    heddle::cli::finish_output();
    return outcome.exit_code;
  } catch (const CLI::Success& e) {  // --help, --version
    return program.exit(e);
  } catch (const CLI::ExtrasError&) {
    heddle::log_error(heddle::cli::text_of_extras(program));
    return 2;
  } catch (const CLI::ParseError& e) {
    heddle::log_error(e.what());
    return 2;
  } catch (const heddle::UsageError& e) {
    heddle::log_error(e.what());
    return 2;
  } catch (const std::bad_alloc&) {
    heddle::log_error("the system has no more memory");
    return 1;
  } catch (const std::exception& e) {
    heddle::log_error(e.what());
    return 1;
  }
}
