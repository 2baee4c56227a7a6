// docs/run-file.md has each key of the tables. Its generated part is written anew by
//   HEDDLE_WRITE_DOCS=1 test_config --gtest_filter='RunFileReference.*'
#include <gtest/gtest.h>

#include <string>

#include "config/generated_docs.h"
#include "config/run_keys.h"
#include "config/schedule_names.h"
#include "formats/json.h"

namespace heddle {
namespace {

std::string limit(std::string_view only) {
  if (only.empty()) return "";
  if (only == "null") return " *(not in this version)*";
  return fmt::format(" *(this version: {})*", cell(std::string(only)));
}

std::string keys_of_run_file() {
  std::string text;
  for (const auto& subject : run_subjects()) {
    text += fmt::format("\n### {}\n\n| key | value | default | |\n|---|---|---|---|\n", subject.name);
    for (const auto& key : subject.keys) {
      text += fmt::format("| `{}` | {} | {} | {}{} |\n", key.name, cell(describe(key.rule)),
                          key.fallback == "null" ? "" : fmt::format("`{}`", plain_text(Json::parse(key.fallback))),
                          key.documentation, limit(key.only));
    }
  }
  return text;
}

std::string argument_text(const ScheduleArgument& argument) {
  if (argument.kind == ScheduleArgument::Kind::word) {
    return fmt::format("`{}` ({})", argument.name, join_choices(argument.words));
  }
  if (!argument.only.empty()) return fmt::format("`{}` (only {})", argument.name, argument.only);
  return fmt::format("`{}`{}", argument.name, argument.is_required ? " (needed)" : "");
}

std::string schedules() {
  std::string text = "\n### Schedules and their arguments\n\n| schedule | arguments |\n|---|---|\n";
  for (const auto& type : schedule_types()) {
    std::string arguments;
    for (const auto& argument : type.arguments) {
      arguments += (arguments.empty() ? "" : ", ") + argument_text(argument);
    }
    if (!type.refusal.empty()) arguments = fmt::format("*refused: {}*", type.refusal);
    text += fmt::format("| `{}`{} | {} |\n", type.name, type.is_deepspeed ? " (DeepSpeed)" : "", arguments);
  }
  return text;
}

TEST(RunFileReference, DocsAreWhatTheTablesSay) {
  expect_generated("docs/run-file.md", "generated from the tables in src/config",
                   keys_of_run_file() + schedules() + "\n");
}

}  // namespace
}  // namespace heddle
