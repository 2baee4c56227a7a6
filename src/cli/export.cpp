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

void export_to_folder(const Options& options) {
  set_threads(available_cores());
  if (is_checkpoint(options.source) && !is_adapter_folder(options.source))
    return export_checkpoint(open_checkpoint(options.source, *alone()), options.target);
  const MergeReport report = export_folder(open_model(options.source), options.target, std::nullopt);
  if (report.merged > 0) {
    note("{} weights are merged; rounding to their type moved them by {:.2g} at most, {:.2g} of the adapter's changes",
         report.merged, report.greatest_error, report.relative_error);
  }
}

void export_to(const Options& options) {
  check_output_place(options.source, options.target, options.format == "gguf");
  if (options.format == "gguf") {
    set_threads(available_cores());
    export_gguf(open_model(options.source), options.target, gguf_type_of(options.type));
  } else if (options.format == "hf") {
    if (!options.type.empty()) throw UsageError("--type is for --format gguf; torch_dtype of the run decides for hf");
    export_to_folder(options);
  } else {
    export_adapter(options.source, options.target);
  }
  note("the model of {} is in {}", options.source, options.target);
}

}  // namespace

void add_export(CLI::App& program, Outcome&) {
  auto options = std::make_shared<Options>();
  auto* command = program.add_subcommand("export", "a model as a Hugging Face folder, a GGUF file or a PEFT adapter");
  command
      ->add_option("MODEL", options->source,
                   "model folder, GGUF file, checkpoint-STEP folder, or adapter (merged for hf)")
      ->required();
  command->add_option("OUT", options->target, "folder or file to write")->required();
  command->add_option("--format", options->format, "hf, gguf, peft")->check(CLI::IsMember({"hf", "gguf", "peft"}));
  command->add_option("--type", options->type, "of a GGUF file's matrices; default: the type they have")
      ->check(CLI::IsMember(gguf_type_names(false)));
  command->callback([options] { export_to(*options); });
}

}  // namespace heddle::cli
