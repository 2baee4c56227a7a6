#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/commands.h"
#include "formats/file_kind.h"
#include "formats/files.h"
#include "formats/json.h"
#include "planner/activation_choice.h"
#include "planner/fit.h"
#include "planner/length_table.h"
#include "tiers/available_memory.h"
#include "train/configured_weights.h"
#include "train/memory_limits.h"
#include "train/memory_phases.h"
#include "train/memory_timeline.h"
#include "train/plan_document.h"
#include "train/residency.h"
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
  std::string path, image, hardware;
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

bool has_budget(const RunConfig& run) { return run.memory_budget || run.device_memory; }

/// The machine that a plan is for: the hardware that is named, else one that the run's budgets describe, else this one.
struct Target {
  std::optional<Device> device;  ///< where hardware is named
  MemoryLimits limits;
};

Target target_of(const std::optional<Hardware>& hardware, const RunConfig& run) {
  if (!hardware) {
    const auto ranks = static_cast<std::uint64_t>(run.ranks);
    return {std::nullopt, memory_limits(run, has_budget(run) ? kUnlimitedMemory : available_memory() / ranks)};
  }
  const bool is_this_machine = hardware->device.is_host && hardware->devices == 0;
  Target target{is_this_machine ? cpu_device(run.ranks) : hardware->device, {}};
  target.limits = memory_limits(run, target.device->is_host ? target.device->memory : kUnlimitedMemory);
  target.limits.device = std::min(target.limits.device, target.device->memory);
  return target;
}

/// Decides what `recompute: auto` leaves open and what stays of what is offloaded, as `heddle train` does, or by the
/// rates of the device that is named.
RunConfig decided(RunConfig run, const CompileVariant& compile, const Target& target) {
  if (run.recompute == Recompute::automatic)
    run.block_activations = choose_activations(run, compile, target.limits, target.device.value_or(nominal_cpu()));
  choose_residency(run, compile, target.limits);
  return run;
}

/// Nothing where neither hardware nor a budget is named.
std::optional<Fit> fit_of(const Target& target, const RunConfig& run, const CompileVariant& compile,
                          const RunData& data) {
  if (!target.device && !has_budget(run)) return std::nullopt;
  constexpr std::int64_t kMostRows = 65536;
  const std::int64_t most_rows =
      data.train ? std::clamp<std::int64_t>(data.train->num_rows(), 1, kMostRows) : kMostRows;
  const auto compile_decided = [&](const RunConfig& variant) { return compile(decided(variant, compile, target)); };
  // Where only a budget is named, this machine lends its rates.
  Fit fit =
      find_fit(run, compile_decided, target.device ? *target.device : cpu_device(run.ranks), target.limits, most_rows);
  fit.is_named = target.device.has_value();
  return fit;
}

/// A folder of which only the config.json is there serves as that.
ModelSource open_planned_model(const RunConfig& run) {
  ModelSource model = open_run_model(run);
  if (model.has_weights && !holds_weights(model)) {
    note("{}: holds no safetensors; planned as its config.json says", model.folder.string());
    model.has_weights = false;
  }
  return model;
}

/// The types of a base's weights, where a plan needs them: as they lie in its files, or as its config.json says.
std::unique_ptr<WeightFiles> open_weight_types(const RunConfig& run, ModelSource& model) {
  const bool is_configured = !model.has_weights && model.is_bitsandbytes;
  if (is_configured) model.has_weights = true;
  if (!needs_weight_types(run, model)) return nullptr;
  if (is_configured) return std::make_unique<ConfiguredWeights>(model);
  return open_weights(model);
}

void plan(const Options& options, const RunFile::Overrides& overrides) {
  const std::string& path = options.path;
  RunFile file = open_run(path, overrides);
  std::optional<Hardware> hardware;
  if (!options.hardware.empty()) {
    hardware = parse_hardware(options.hardware);
    file = on_hardware(std::move(file), path, overrides, *hardware);
  }
  file.require_model_key();
  const RunConfig& run = file.config();
  ModelSource model = open_planned_model(run);
  const RunData data = load_run_data(run, model);
  const Target target = target_of(hardware, run);
  const auto weights = open_weight_types(run, model);
  const CompileVariant compile = [&](const RunConfig& variant) {
    return compile_run(variant, model, weights.get(), data);
  };
  const CompiledRun compiled = compile(decided(run, compile, target));
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
  const auto fit = options.program ? std::nullopt : fit_of(target, run, compile, data);
  if (options.json) {
    Json document = plan_document(compiled);
    if (options.program) add_phases(document, memory_phases(compiled));  // else it is the document of plan.json
    if (!compiled.block_activations.empty())
      document["recompute_blocks"] = activations_document(compiled.block_activations);
    if (fit) add_fit(document, *fit);
    text = document.dump(2) + "\n";
  } else {
    text = options.program ? program_text(compiled) : bill_text(compiled) + phases_text(memory_phases(compiled));
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
  command->add_flag(
      "--program", options->program,
      "list every instruction with its buffers, shapes, bytes and lifetimes; with --json: bytes by phase");
  command->add_option("--image", options->image,
                      "write an SVG: memory over a step, or for a model without data the peak by length");
  command->add_option("--hardware", options->hardware,
                      "NAME or NxNAME, as 4xA100-40GB: whether it fits there, and what would make it fit");
  command->allow_extras();
  command->footer(
      "--KEY VALUE sets any key of the run file, e.g. --bf16 true --max_length 4096 --recompute full.\n"
      "--device_memory 24GiB or --memory_budget 32GiB (with host memory) ask the same as --hardware for a budget.");
  command->callback([command, options] { plan(*options, parse_overrides(command->remaining())); });
}

}  // namespace heddle::cli
