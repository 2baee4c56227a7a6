// docs/run-file.md has each key of the tables. Its generated part is written anew by
//   HEDDLE_WRITE_DOCS=1 test_config --gtest_filter='RunFileReference.*'
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "config/deepspeed_keys.h"
#include "config/run_keys.h"
#include "config/schedule_names.h"
#include "formats/files.h"

namespace heddle {
namespace {

constexpr std::string_view kBegin = "<!-- generated from the tables in src/config: begin -->\n";
constexpr std::string_view kEnd = "<!-- generated from the tables in src/config: end -->\n";

std::filesystem::path page() { return std::filesystem::path(HEDDLE_SOURCE_DIR) / "docs/run-file.md"; }

/// A | in a cell would end it.
std::string cell(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.replace(at, 1, ", ");
  return text;
}

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

std::string effect_of(const DeepSpeedKey& key) {
  if (key.is_free_form) return "refused, unless its `enabled` is false";
  if (!key.without_effect.empty()) return fmt::format("accepted without effect: {}", key.without_effect);
  if (key.run_key.empty() && !key.only.empty()) return fmt::format("only {}", cell(std::string(key.only)));
  std::string text = key.run_key.empty() ? "honoured" : fmt::format("as `{}`", key.run_key);
  const auto* run_key = key.run_key.empty() ? nullptr : find_run_key(key.run_key);
  return text + limit(run_key == nullptr ? key.only : run_key->only);
}

std::string keys_of_deepspeed() {
  std::string text = "\n### Keys of DeepSpeed's JSON\n\n| key | value | what it does here |\n|---|---|---|\n";
  for (const auto& key : deepspeed_keys()) {
    const bool is_section = key.rule.type == ValueRule::Type::map;
    if (is_section && !key.is_free_form) continue;
    const auto value = is_section ? "an object" : describe(key.rule);
    const bool may_be_auto = key.automatic != DeepSpeedKey::Auto::none;
    text += fmt::format("| `{}` | {}{} | {} |\n", key.path, cell(value), may_be_auto ? ", `auto`" : "", effect_of(key));
  }
  text += "\n| former name | now |\n|---|---|\n";
  for (const auto& rename : deepspeed_renames()) {
    text += fmt::format("| `{}` | `{}`{} |\n", rename.old_path, rename.new_path,
                        rename.is_switch ? ": true is `cpu`, false `none`" : "");
  }
  return text;
}

TEST(RunFileReference, DocsAreWhatTheTablesSay) {
  const auto generated = keys_of_run_file() + schedules() + keys_of_deepspeed() + "\n";
  auto text = read_text_file(page());
  const auto begin = text.find(kBegin), end = text.find(kEnd);
  ASSERT_NE(begin, std::string::npos);
  ASSERT_NE(end, std::string::npos);
  const auto first = begin + kBegin.size();
  if (std::getenv("HEDDLE_WRITE_DOCS") != nullptr) {
    text.replace(first, end - first, generated);
    write_text_file(page(), text);
    return;
  }
  EXPECT_EQ(text.substr(first, end - first), generated) << "run this test with HEDDLE_WRITE_DOCS=1";
}

}  // namespace
}  // namespace heddle
