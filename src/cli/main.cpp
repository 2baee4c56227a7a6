#include <CLI/CLI.hpp>

#include <algorithm>
#include <exception>
#include <new>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "cli/commands.h"

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
    program.parse(static_cast<int>(end - argv), argv);
    return outcome.exit_code;
  } catch (const CLI::Success& e) {  // --help, --version
    return program.exit(e);
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
