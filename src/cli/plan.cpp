#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "base/text.h"
#include "cli/commands.h"
#include "formats/file_kind.h"
#include "formats/files.h"
#include "formats/json.h"
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
  std::string path, image;
  bool json = false, program = false;
};

void plan(const Options& options, const RunFile::Overrides& overrides) {
  const std::string& path = options.path;
  const RunFile file = is_model(path) ? RunFile::from_overrides(path, overrides) : RunFile::load(path, overrides);
  file.require_supported();
  const RunConfig& run = file.config();
  const ModelSource model = open_run_model(run);
  const CompiledRun compiled = compile_run(run, model, load_run_data(run, model));
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
  if (options.json) {
    text = plan_document(compiled).dump(2) + "\n";
  } else {
    text = options.program ? program_text(compiled) : bill_text(compiled);
    if (!options.program && by_length) text += length_text(lengths);
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
  command->allow_extras();
  command->footer("--KEY VALUE sets any key of the run file, e.g. --bf16 true --max_length 4096 --recompute full.");
  command->callback([command, options] { plan(*options, parse_overrides(command->remaining())); });
}

}  // namespace heddle::cli
