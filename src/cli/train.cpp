#include "train/trainer.h"

#include "base/log.h"
#include "cli/commands.h"
#include "comm/job.h"
#include "planner/activation_choice.h"

namespace heddle::cli {

void add_train(CLI::App& program, Outcome& outcome) {
  auto* command = program.add_subcommand("train", "train or fine-tune a model");
  auto path = std::make_shared<std::string>();
  command->add_option("RUN", *path, "run file, YAML or JSON")->required();
  command->allow_extras();
  command->footer(
      "--KEY VALUE overrides any key of the run file; nested keys with a dot (--lr_scheduler_kwargs.min_lr 1e-5).");
  command->callback([command, path, &outcome] {
    if (launched_rank() > 0) mute_thread_log();  // rank 0 says it all
    const auto ranks = is_launched() ? std::optional(launched_size()) : std::nullopt;
    outcome.exit_code =
        train(RunFile::load(*path, parse_overrides(command->remaining()), ranks), choose_activations_for_training);
  });
}

}  // namespace heddle::cli
