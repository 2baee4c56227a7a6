#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "base/log.h"
#include "cli/commands.h"
#include "config/from_trainer.h"
#include "config/run_keys.h"

namespace heddle::cli {
namespace {

/// A line for each key: value and origin in columns, by subject in the order of the documentation.
class Listing {
 public:
  explicit Listing(const nlohmann::json& effective) : effective_(effective) {
    for (const auto& [key, entry] : effective.items()) {
      key_width_ = std::max(key_width_, key.size());
      value_width_ = std::max(value_width_, std::min(kWidestValue, entry.at("value").dump().size()));
    }
  }

  void print() const {
    for (const auto& subject : run_subjects()) {
      std::printf("# %s\n", std::string(subject.name).c_str());
      for (const auto& key : subject.keys) {
        if (effective_.contains(key.name)) print_line(std::string(key.name));
        if (key.name == "deepspeed") print_deepspeed();
      }
    }
  }

 private:
  void print_deepspeed() const {
    for (const auto& [key, entry] : effective_.items()) {
      if (key.starts_with("deepspeed.")) print_line(key);
    }
  }
  void print_line(const std::string& key) const {
    const auto& entry = effective_.at(key);
    std::printf("%-*s  %-*s  %s\n", static_cast<int>(key_width_), key.c_str(), static_cast<int>(value_width_),
                entry.at("value").dump().c_str(), entry.at("origin").get<std::string>().c_str());
  }

  static constexpr std::size_t kWidestValue = 40;
  const nlohmann::json& effective_;
  std::size_t key_width_ = 0, value_width_ = 0;
};

void show(const std::string& path, const RunFile::Overrides& overrides, bool as_json) {
  const auto effective = RunFile::load(path, overrides).effective();
  if (as_json) {
    std::printf("%s\n", effective.dump(2).c_str());
  } else {
    Listing(effective).print();
  }
}

void convert(const std::string& path, const RunFile::Overrides& overrides) {
  const auto converted = run_file_from_trainer(path, overrides);
  for (const auto& note : converted.notes) log_note(note);
  std::fwrite(converted.yaml.data(), 1, converted.yaml.size(), stdout);
}

}  // namespace

void add_config(CLI::App& program, Outcome&) {
  struct Options {
    std::string arguments;
    bool json = false;
  };
  auto* command = program.add_subcommand("config", "the effective configuration of a run, each value with its origin");
  auto options = std::make_shared<Options>();
  command->add_flag("--json", options->json, "print one JSON document");
  command->add_option("--from-trainer", options->arguments,
                      "print the run file that says what Hugging Face's TrainingArguments say");
  command->allow_extras();  // RUN among them: as a positional it would take the value of --KEY VALUE
  command->footer(
      "heddle config RUN [--KEY VALUE ...] [--json]\n"
      "heddle config --from-trainer ARGS.json [--deepspeed DS.json] [--KEY VALUE ...]");
  command->callback([command, options] {
    auto words = command->remaining();
    if (!options->arguments.empty()) {
      if (options->json) throw UsageError("--from-trainer prints YAML; --json is not for it");
      return convert(options->arguments, parse_overrides(words));
    }
    if (words.empty() || words.front().starts_with("--")) throw UsageError("RUN is missing: heddle config RUN");
    const std::string path = words.front();
    words.erase(words.begin());
    show(path, parse_overrides(words), options->json);
  });
}

}  // namespace heddle::cli
