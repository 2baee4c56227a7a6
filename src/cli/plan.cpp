#include <cstdio>
#include <filesystem>

#include "cli/commands.h"
#include "formats/files.h"
#include "formats/json.h"
#include "train/plan_document.h"
#include "train/run_setup.h"

namespace heddle::cli {
namespace {

/// A folder or a config.json is a model; anything else is a run file.
bool is_model(const std::string& path) {
  if (std::filesystem::is_directory(path)) return true;
  if (std::filesystem::path(path).extension() != ".json" || !std::filesystem::exists(path)) return false;
  const Json document = parse_json(read_text_file(path), path, 200, NonFinite::as_text);
  return document.is_object() && (document.contains("model_type") || document.contains("architectures"));
}

void plan(const std::string& path, const RunFile::Overrides& overrides, bool as_json, bool with_program) {
  const RunFile file = is_model(path) ? RunFile::from_overrides(path, overrides) : RunFile::load(path, overrides);
  const RunConfig& run = file.config();
  const ModelSource model = open_run_model(run);
  const CompiledRun compiled = compile_run(run, model, load_run_data(run, model));
  std::string text;
  if (as_json) {
    text = bill_document(compiled.parameters, compiled.plan.device).dump(2) + "\n";
  } else {
    text = with_program ? program_text(compiled) : bill_text(compiled);
    if (!with_program && run.train_file.empty()) text += lengths_text(run, model.config);
  }
  std::fwrite(text.data(), 1, text.size(), stdout);
}

}  // namespace

void add_plan(CLI::App& program, Outcome&) {
  struct Options {
    std::string path;
    bool json = false, program = false;
  };
  auto* command = program.add_subcommand("plan", "the memory bill of a run or a model, without reading a weight");
  auto options = std::make_shared<Options>();
  command->add_option("RUN|MODEL", options->path, "run file, model folder or config.json")->required();
  command->add_flag("--json", options->json, "print one JSON document");
  command->add_flag("--program", options->program,
                    "list every instruction with its buffers, shapes, bytes and lifetimes");
  command->allow_extras();
  command->footer("--KEY VALUE sets any key of the run file, e.g. --bf16 true --max_length 4096 --recompute full.");
  command->callback([command, options] {
    plan(options->path, parse_overrides(command->remaining()), options->json, options->program);
  });
}

}  // namespace heddle::cli
