#include <memory>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/save.h"
#include "cli/commands.h"
#include "comm/job.h"
#include "train/checkpoint_export.h"

namespace heddle::cli {
namespace {

struct Options {
  std::string source, target, format = "hf";
};

void export_to(const Options& options) {
  if (options.format != "hf") fail("--format {} is not there yet in this version; hf is", options.format);
  const Checkpoint checkpoint = open_checkpoint(options.source, *alone());
  export_checkpoint(checkpoint, options.target);
  note("the model of {} is in {}", options.source, options.target);
}

}  // namespace

void add_export(CLI::App& program, Outcome&) {
  auto options = std::make_shared<Options>();
  auto* command = program.add_subcommand("export", "a checkpoint's model as a Hugging Face folder");
  command->add_option("CHECKPOINT", options->source, "checkpoint-STEP folder of a run")->required();
  command->add_option("OUT", options->target, "folder to write")->required();
  command->add_option("--format", options->format, "hf")->check(CLI::IsMember({"hf", "gguf", "peft"}));
  command->callback([options] { export_to(*options); });
}

}  // namespace heddle::cli
