#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "base/threads.h"
#include "checkpoint/save.h"
#include "cli/commands.h"
#include "cli/gguf_types.h"
#include "cli/output_place.h"
#include "comm/job.h"
#include "train/checkpoint_export.h"
#include "train/folder_export.h"
#include "train/gguf_export.h"

namespace heddle::cli {
namespace {

struct Options {
  std::string source, target, format = "hf", type;
};

MergeReport export_to_folder(const Options& options) {
  if (!is_checkpoint(options.source) || is_adapter_folder(options.source))
    return export_folder(open_model(options.source), options.target, std::nullopt);
  export_checkpoint(open_checkpoint(options.source, *alone()), options.target);
  return {};
}

void export_to(const Options& options) {
  check_output_place(options.source, options.target, options.format == "gguf");
  if (!options.type.empty() && options.format != "gguf")
    throw UsageError("--type is for --format gguf; torch_dtype of the run decides for hf");
  set_threads(available_cores());
  MergeReport report;
  if (options.format == "gguf")
    report = export_gguf(open_model(options.source), options.target, gguf_type_of(options.type));
  if (options.format == "hf") report = export_to_folder(options);
  if (options.format == "peft") export_adapter(options.source, options.target);
  note_merge(report);
  note("the model of {} is in {}", options.source, options.target);
}

}  // namespace

void add_export(CLI::App& program, Outcome&) {
  auto options = std::make_shared<Options>();
  auto* command = program.add_subcommand("export", "a model as a Hugging Face folder, a GGUF file or a PEFT adapter");
  command
      ->add_option("MODEL", options->source,
                   "model folder, GGUF file, checkpoint-STEP folder, or adapter (merged for hf and gguf)")
      ->required();
  command->add_option("OUT", options->target, "folder or file to write")->required();
  command->add_option("--format", options->format, "hf, gguf, peft")->check(CLI::IsMember({"hf", "gguf", "peft"}));
  command->add_option("--type", options->type, "of a GGUF file's matrices; default: the type they have")
      ->check(CLI::IsMember(gguf_type_names(false)));
  command->callback([options] { export_to(*options); });
}

}  // namespace heddle::cli
