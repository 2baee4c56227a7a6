// docs/deepspeed.md and docs/commands/config.md have each row of the tables, and what becomes of published DeepSpeed
// files. Their generated parts are written anew by
//   HEDDLE_WRITE_DOCS=1 test_config --gtest_filter='*Reference.*'
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "config/deepspeed_keys.h"
#include "config/generated_docs.h"
#include "config/run_keys.h"
#include "config/run_resolver.h"
#include "config/schedule_names.h"
#include "config/trainer_arguments.h"
#include "formats/files.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

std::string limit(std::string_view only) {
  return only.empty() ? "" : fmt::format(" *(this version: {})*", cell(std::string(only)));
}

std::string effect_of(const DeepSpeedKey& key) {
  switch (key.effect) {
    case DeepSpeedKey::Effect::none: return fmt::format("without effect: {}", key.why);
    case DeepSpeedKey::Effect::refused:
      if (key.is_free_form) return fmt::format("refused unless turned off (`enabled` false): {}", key.why);
      if (key.only.empty()) return fmt::format("refused: {}", key.why);
      return fmt::format("only {}: {}", cell(std::string(key.only)), key.why);
    case DeepSpeedKey::Effect::honoured: break;
  }
  if (key.run_key.empty()) return "honoured";
  return fmt::format("honoured, as `{}`{}", key.run_key, limit(find_run_key(key.run_key)->only));
}

std::string value_of(const ScheduleArgument& argument) {
  switch (argument.kind) {
    case ScheduleArgument::Kind::flag: return "true or false";
    case ScheduleArgument::Kind::word: return join_choices(argument.words);
    case ScheduleArgument::Kind::whole: return "a whole number";
    case ScheduleArgument::Kind::number: break;
  }
  return "a number";
}

/// Rows of scheduler.params: each argument with the schedules that take it.
std::string schedule_arguments() {
  struct Row {
    const ScheduleArgument* argument;
    std::string types;
  };
  std::vector<Row> rows;
  for (const auto& type : schedule_types()) {
    for (const auto& argument : type.arguments) {
      if (!type.is_deepspeed) continue;
      auto row = std::find_if(rows.begin(), rows.end(),
                              [&](const Row& other) { return other.argument->name == argument.name; });
      if (row == rows.end()) row = rows.insert(rows.end(), {&argument, ""});
      row->types += fmt::format("{}`{}`{}", row->types.empty() ? "" : ", ", type.name,
                                argument.only.empty() ? "" : fmt::format(" (only {})", argument.only));
    }
  }
  std::string text;
  for (const auto& [argument, types] : rows) {
    text +=
        fmt::format("| `scheduler.params.{}` | {} | honoured, by {} |\n", argument->name, value_of(*argument), types);
  }
  return text;
}

std::string keys_of_deepspeed() {
  std::string text = "\n| key | value | what it does here |\n|---|---|---|\n";
  for (const auto& key : deepspeed_keys()) {
    const bool is_section = key.rule.type == ValueRule::Type::map;
    if (key.path == "scheduler.params") text += schedule_arguments();
    if (is_section && !key.is_free_form) continue;
    const bool is_refused = key.effect == DeepSpeedKey::Effect::refused && key.only.empty();
    const auto value = is_section ? "an object" : is_refused ? "" : describe(key.rule);
    const bool may_be_auto = key.automatic != DeepSpeedKey::Auto::none;
    text += fmt::format("| `{}` | {}{} | {} |\n", key.path, cell(value), may_be_auto ? ", `auto`" : "", effect_of(key));
  }
  text += "\n| former name | now |\n|---|---|\n";
  for (const auto& rename : deepspeed_renames()) {
    text += fmt::format("| `{}` | `{}`{} |\n", rename.old_path, rename.new_path,
                        rename.is_switch ? ": true is `cpu`, false `none`" : "");
  }
  return text + "\n";
}

TEST(DeepSpeedReference, DocsAreWhatTheTablesSay) {
  expect_generated("docs/deepspeed.md", "generated from the table in src/config", keys_of_deepspeed());
}

/// The run file's keys that the JSON decided, as `key value`.
std::string decided_keys(const RunSettings& settings) {
  std::string text;
  for (const auto& subject : run_subjects()) {
    for (const auto& key : subject.keys) {
      const auto& setting = settings.at(key.name);
      if (!setting.origin.starts_with("deepspeed (") && !setting.origin.starts_with("DeepSpeed's rule")) continue;
      text += fmt::format("{}`{}` {}", text.empty() ? "" : ", ", key.name, plain_text(setting.value));
    }
  }
  return text.empty() ? "nothing: all is the run file's" : text;
}

std::string replace_all(std::string text, const std::string& part, const std::string& other) {
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += other.size()) {
    text.replace(at, part.size(), other);
  }
  return text;
}

/// A file that is no JSON asks for nothing.
bool asks_for_fp16(const fs::path& file) {
  try {
    const auto json = read_json_file(file);
    const Json::json_pointer enabled("/fp16/enabled");
    return json.contains(enabled) && json[enabled] == true;
  } catch (const Error&) {
    return false;
  }
}

TEST(DeepSpeedReference, DocsSayWhatBecomesOfPublishedFiles) {
  const char* data = std::getenv("HEDDLE_DATA");
  const auto folder =
      (data != nullptr ? fs::path(data) : fs::path(HEDDLE_SOURCE_DIR) / "../shared/data") / "ds_configs";
  if (!fs::exists(folder)) GTEST_SKIP() << folder << " is absent";
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  const auto model = fs::temp_directory_path() / fmt::format("heddle-deepspeed-reference-{}", ::getpid());
  fs::create_directories(model);
  std::ofstream(model / "config.json") << R"({"hidden_size": 64})";
  std::string text = "\n| file | result | what it decides, or why not |\n|---|---|---|\n";
  for (const auto& file : files) {
    const bool is_fp16 = asks_for_fp16(file);
    const Json run = {{"model_name_or_path", model.string()},
                      {"max_steps", 100},
                      {"warmup_steps", 10},
                      {"bf16", !is_fp16},
                      {"fp16", is_fp16},
                      {"ranks", 1},
                      {"deepspeed", file.string()}};
    try {
      const auto resolved = resolve_run(parse_source(run.dump(), "run", false), "run", {});
      text += fmt::format("| {} | accepted | {} |\n", file.stem().string(), decided_keys(resolved.settings));
    } catch (const Error& e) {
      const auto why = replace_all(e.what(), file.string(), "ds.json");
      text += fmt::format("| {} | refused | `{}` |\n", file.stem().string(), cell(why));
    }
  }
  fs::remove_all(model);
  expect_generated("docs/deepspeed.md", "generated from published files", text + "\n");
}

std::string trainer_arguments_table() {
  std::string text = "\n| argument | becomes | |\n|---|---|---|\n";
  for (const auto& row : trainer_arguments()) {
    const bool has_key = !row.run_key.empty();
    const auto becomes =
        has_key ? fmt::format("`{}`", row.run_key)
        : row.use == TrainerArgument::Use::refused
            ? fmt::format("refused but for {}", row.harmless.empty() ? "empty" : cell(std::string(row.harmless)))
            : "left out";
    text += fmt::format("| `{}` | {} | {} |\n", row.name, becomes, row.why);
  }
  return text + "\n";
}

TEST(TrainerReference, DocsAreWhatTheTableSays) {
  expect_generated("docs/commands/config.md", "generated from the table in src/config", trainer_arguments_table());
}

}  // namespace
}  // namespace heddle
