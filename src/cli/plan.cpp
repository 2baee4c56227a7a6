#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "cli/commands.h"
#include "config/value_rule.h"
#include "formats/file_kind.h"
#include "formats/files.h"
#include "formats/json.h"
#include "planner/fit.h"
#include "planner/length_table.h"
#include "planner/memory_timeline.h"
#include "train/plan_document.h"
#include "train/run_setup.h"

namespace heddle::cli {
namespace {

/// A folder, a GGUF file or a config.json is a model; anything else is a run file.
bool is_model(const std::string& path) {
  if (std::filesystem::is_directory(path) || is_gguf_file(path)) return true;
  if (std::filesystem::path(path).extension() != ".json" || !std::filesystem::exists(path)) return false;
  const Json document = parse_json(read_text_file(path), path, 200, NonFinite::as_text);
  return document.is_object() && (document.contains("model_type") || document.contains("architectures"));
}

struct Options {
  std::string path, image, hardware, memory_budget;
  bool json = false, program = false;
};

RunFile open_run(const std::string& path, const RunFile::Overrides& overrides) {
  return is_model(path) ? RunFile::from_overrides(path, overrides) : RunFile::load(path, overrides);
}

/// The run on as many ranks as there are devices; without a number of devices, on its own.
RunFile on_hardware(RunFile file, const std::string& path, RunFile::Overrides overrides, const Hardware& hardware) {
  const int ranks = file.config().ranks;
  if (hardware.devices == 0 || hardware.devices == ranks) return file;
  const std::string origin = file.effective().at("ranks").at("origin");
  if (origin != "default") {
    fail("--hardware names {} devices, but ranks is {} ({}); expected the same number", hardware.devices, ranks,
         origin);
  }
  overrides.emplace_back("ranks", std::to_string(hardware.devices));
  return open_run(path, overrides);
}

std::uint64_t parse_budget(const std::string& text) {
  SourceNode node;
  node.kind = plain_scalar_kind(text);
  node.text = text;
  node.where = "command line";
  return read_value(node, ValueRule::bytes(), "--memory_budget").get<std::uint64_t>();
}

/// Nothing where neither hardware nor a budget is named. The budget is the least of what is named: the device's memory,
/// --memory_budget, and the run's device_memory.
std::optional<Fit> fit_of(const Options& options, const std::optional<Hardware>& hardware, const RunConfig& run,
                          const ModelSource& model, const RunData& data) {
  if (!hardware && options.memory_budget.empty()) return std::nullopt;
  const bool is_shared = !hardware || (hardware->devices == 0 && hardware->device.name == "cpu");
  Device device = is_shared ? cpu_device(run.ranks) : hardware->device;
  if (!hardware) device.is_host = false;  // it lends its rates alone: the budget is that of some other device
  std::uint64_t budget = options.memory_budget.empty() ? device.memory : parse_budget(options.memory_budget);
  if (hardware) budget = std::min(budget, device.memory);
  if (run.device_memory) budget = std::min(budget, *run.device_memory);
  constexpr std::int64_t kMostRows = 65536;
  const std::int64_t most_rows =
      data.train ? std::clamp<std::int64_t>(data.train->num_rows(), 1, kMostRows) : kMostRows;
  const auto compile = [&](const RunConfig& variant) { return compile_run(variant, model, data); };
  return find_fit(run, compile, device, budget, most_rows);
}

void plan(const Options& options, const RunFile::Overrides& overrides) {
  const std::string& path = options.path;
  RunFile file = open_run(path, overrides);
  std::optional<Hardware> hardware;
  if (!options.hardware.empty()) {
    hardware = parse_hardware(options.hardware);
    file = on_hardware(std::move(file), path, overrides, *hardware);
  }
  file.require_supported();
  const RunConfig& run = file.config();
  const ModelSource model = open_run_model(run);
  const RunData data = load_run_data(run, model);
  const CompiledRun compiled = compile_run(run, model, data);
  const bool by_length = run.train_file.empty();
  LengthTable lengths;
  if (by_length && !options.program && (!options.json || !options.image.empty()))
    lengths = plan_by_length(run, model.config, compiled.rules);
  if (!options.image.empty()) {
    const std::string title = fmt::format("{}, {} parameters{}", model.config.model_type,
                                          format_count(static_cast<std::uint64_t>(compiled.parameters.count())),
                                          run.ranks > 1 ? fmt::format(", {} ranks, ZeRO", run.ranks) : "");
    write_text_file(options.image, by_length ? length_image(lengths, title, run.device_memory)
                                             : timeline_image(memory_timeline(compiled), title));
  }
  std::string text;
  const auto fit = options.program ? std::nullopt : fit_of(options, hardware, run, model, data);
  if (options.json) {
    Json document = plan_document(compiled);
    if (fit) add_fit(document, *fit);
    text = document.dump(2) + "\n";
  } else {
    text = options.program ? program_text(compiled) : bill_text(compiled);
    if (!options.program && by_length) text += length_text(lengths);
    if (fit) text += fit_text(*fit);
  }
  std::fwrite(text.data(), 1, text.size(), stdout);
}

}  // namespace

void add_plan(CLI::App& program, Outcome&) {
  auto* command = program.add_subcommand("plan", "the memory bill of a run or a model, without reading a weight");
  auto options = std::make_shared<Options>();
  command->add_option("RUN|MODEL", options->path, "run file, model folder, GGUF file or config.json")->required();
  command->add_flag("--json", options->json, "print one JSON document");
  command->add_flag("--program", options->program,
                    "list every instruction with its buffers, shapes, bytes and lifetimes");
  command->add_option("--image", options->image,
                      "write an SVG: memory over a step, or for a model without data the peak by length");
  command->add_option("--hardware", options->hardware,
                      "NAME or NxNAME, as 4xA100-40GB: whether it fits there, and what would make it fit");
  command->add_option("--memory_budget", options->memory_budget, "the same for a budget of each device, as 24GiB");
  command->allow_extras();
  command->footer("--KEY VALUE sets any key of the run file, e.g. --bf16 true --max_length 4096 --recompute full.");
  command->callback([command, options] { plan(*options, parse_overrides(command->remaining())); });
}

}  // namespace heddle::cli
