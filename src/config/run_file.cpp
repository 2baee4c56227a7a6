#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/log.h"
#include "config/one_line_error.h"
#include "config/run_resolver.h"
#include "formats/files.h"

namespace heddle {
namespace {

constexpr std::size_t kMostFileBytes = std::size_t{16} << 20;

void check_exists(const std::string& path, const std::string& key, const std::string& origin) {
  std::error_code error;
  if (std::filesystem::exists(path, error)) return;
  if (error) fail("{}: {} is {}: {}", origin, key, path, error.message());
  const auto current = std::filesystem::current_path(error);
  const auto where = std::filesystem::path(path).is_relative() ? fmt::format(" in {}", current.string()) : "";
  const bool is_hub_name = key == "model_name_or_path" && std::count(path.begin(), path.end(), '/') == 1;
  fail("{}: {} is {}: no such file or folder{}{}", origin, key, path, where,
       is_hub_name && !where.empty() ? "; models of the Hub are not fetched, expected a folder on this machine" : "");
}

/// output_dir may be made, also with the folders above it: the first that exists must be a folder.
void check_output_dir(const std::string& output_dir, const std::string& origin) {
  std::error_code error;
  auto path = std::filesystem::absolute(output_dir, error).lexically_normal();
  for (auto at = path; !at.empty(); at = at.parent_path()) {
    const auto status = std::filesystem::status(at, error);
    if (std::filesystem::is_directory(status)) return;
    if (std::filesystem::exists(status)) {
      fail("{}: output_dir is {}: {} is not a folder", origin, output_dir, at.string());
    }
    if (at == at.parent_path()) return;
  }
}

}  // namespace

RunFile RunFile::load(const std::filesystem::path& path, const Overrides& overrides,
                      std::optional<int> launcher_ranks) {
  return parse(read_text_file(path, kMostFileBytes), path.string(), overrides, launcher_ranks);
}

RunFile RunFile::parse(std::string_view text, const std::string& name, const Overrides& overrides,
                       std::optional<int> launcher_ranks) {
  return with_one_line_errors(
      [&] { return RunFile(resolve_run(parse_source(text, name, false), name, overrides, launcher_ranks), name); });
}

RunFile RunFile::from_overrides(const std::string& model, const Overrides& overrides) {
  SourceNode root, value;
  root.kind = SourceNode::Kind::map;
  root.where = value.where = "command line";
  value.kind = SourceNode::Kind::text;
  value.text = model;
  const bool is_config = std::filesystem::path(model).extension() == ".json";
  root.add(is_config ? "config_name" : "model_name_or_path", std::move(value));
  return with_one_line_errors(
      [&] { return RunFile(resolve_run(std::move(root), "command line", overrides, std::nullopt), "command line"); });
}

RunFile::RunFile(const ResolvedRun& run, std::string name) : name_(std::move(name)), config_(run.config) {
  unsupported_ = one_line(find_unsupported(run.settings));
  const bool has_lora = !run.settings.at("lora").value.is_null();
  for (const auto& [key, setting] : run.settings.all()) {
    if (key.starts_with("lora.") && !has_lora) continue;
    origins_.emplace_back(
        key, std::pair(setting.value.dump(-1, ' ', false, Json::error_handler_t::replace), setting.origin));
  }
  for (const auto& note : run.notes) log_note(note);
  for (const auto& warning : run.warnings) log_warning(warning);
}

nlohmann::json RunFile::effective() const {
  auto document = nlohmann::json::object();
  for (const auto& [key, entry] : origins_) {
    document[key] = {{"value", nlohmann::json::parse(entry.first)}, {"origin", entry.second}};
  }
  return document;
}

void RunFile::require_supported() const {
  if (!unsupported_.empty()) throw Error(unsupported_);
}

void RunFile::require_model_key() const {
  require_supported();
  if (config_.model_name_or_path.empty() && config_.config_name.empty()) {
    fail("{}: model_name_or_path is missing (or config_name, for a model from scratch)", name_);
  }
}

std::string RunFile::origin(std::string_view key) const {
  const auto found =
      std::find_if(origins_.begin(), origins_.end(), [&](const auto& entry) { return entry.first == key; });
  return found == origins_.end() ? name_ : found->second.second;
}

void RunFile::require_data_keys() const {
  require_model_key();
  if (config_.train_file.empty()) fail("{}: train_file is missing", name_);
  const auto* model_key = config_.config_name.empty() ? "model_name_or_path" : "config_name";
  check_exists(config_.config_name.empty() ? config_.model_name_or_path : config_.config_name, model_key,
               origin(model_key));
  for (const auto& file : config_.train_file) check_exists(file.path, "train_file", origin("train_file"));
  for (const auto& file : config_.validation_file) {
    check_exists(file.path, "validation_file", origin("validation_file"));
  }
}

void RunFile::require_training_keys() const {
  require_data_keys();
  if (config_.output_dir.empty()) fail("{}: output_dir is missing", name_);
  if (config_.validation_file.empty()) {
    const auto refuse = [&](const char* key) { fail("{}: validation_file is missing, which {} needs", name_, key); };
    if (config_.load_best_model_at_end) refuse("load_best_model_at_end");
    if (config_.early_stopping_patience > 0) refuse("early_stopping_patience");
    if (config_.evaluates_by_epoch) refuse("eval_strategy: epoch");
    if (config_.saves_best) refuse("save_strategy: best");
    if (config_.eval_steps > 0) {
      warning("{}: eval_steps is {}, but there is no validation_file: nothing is evaluated", origin("eval_steps"),
              config_.eval_steps);
    }
  }
  const auto& resume = config_.resume_from_checkpoint;
  if (resume != "auto" && resume != "false") {
    check_exists(resume, "resume_from_checkpoint", origin("resume_from_checkpoint"));
  }
  check_output_dir(config_.output_dir, origin("output_dir"));
  std::error_code error;
  if (std::filesystem::equivalent(config_.model_name_or_path, config_.output_dir, error) && !config_.has_lora) {
    warning("{}: output_dir is the folder of model_name_or_path, whose weights the trained ones will replace",
            origin("output_dir"));
  }
}

}  // namespace heddle
