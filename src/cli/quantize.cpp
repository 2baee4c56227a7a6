#include <memory>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "base/threads.h"
#include "cli/commands.h"
#include "cli/gguf_types.h"
#include "cli/output_place.h"
#include "quantize/four_bit.h"
#include "train/four_bit_export.h"
#include "train/gguf_export.h"

namespace heddle::cli {
namespace {

struct Options {
  std::string source, target, type;
  bool double_quantized = false;
};

void quantize(const Options& options) {
  set_threads(available_cores());
  const auto gguf_type = gguf_type_of(options.type);
  check_output_place(options.source, options.target, gguf_type.has_value());
  if (gguf_type) {
    if (options.double_quantized) throw UsageError("--bnb_4bit_use_double_quant is for --type nf4 and fp4");
    note_merge(export_gguf(open_model(options.source), options.target, gguf_type));
  } else {
    export_four_bit_folder(open_model(options.source), options.target,
                           four_bit_type(options.type, options.double_quantized));
  }
  note("the model of {} as {} is in {}", options.source, options.type, options.target);
}

}  // namespace

void add_quantize(CLI::App& program, Outcome&) {
  auto options = std::make_shared<Options>();
  auto* command = program.add_subcommand("quantize", "a model in four bits of bitsandbytes, or in a type of GGUF");
  command
      ->add_option("MODEL", options->source,
                   "model folder, GGUF file, checkpoint-STEP folder, or adapter (merged for GGUF)")
      ->required();
  command->add_option("OUT", options->target, "folder to write (nf4, fp4), or GGUF file")->required();
  auto types = gguf_type_names(true);
  types.insert(types.begin(), {"nf4", "fp4"});
  command->add_option("--type", options->type, "of the linear layers (nf4, fp4), or of all matrices (GGUF's)")
      ->required()
      ->check(CLI::IsMember(types));
  command->add_option("--bnb_4bit_use_double_quant", options->double_quantized,
                      "true: scales of nf4 and fp4 in 8 bits too");
  command->callback([options] { quantize(*options); });
}

}  // namespace heddle::cli
