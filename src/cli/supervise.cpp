#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/save.h"
#include "cli/commands.h"
#include "cli/number_check.h"
#include "cli/rank_count.h"
#include "cli/restart_policy.h"
#include "cli/supervised_job.h"

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kSignalled = 128;

/// output_dir of the run, where the command's words have `heddle train RUN --KEY VALUE ...` in them. What is wrong with
/// these is for the command to say.
std::optional<fs::path> output_dir_of(const std::vector<std::string>& command) {
  for (std::size_t i = 1; i + 1 < command.size(); ++i) {
    if (command[i] != "train" || !fs::path(command[i - 1]).filename().string().starts_with("heddle")) continue;
    try {
      const std::vector<std::string> rest(command.begin() + static_cast<std::ptrdiff_t>(i) + 2, command.end());
      const auto run = RunFile::load(command[i + 1], parse_overrides(rest));
      if (!run.config().output_dir.empty()) return run.config().output_dir;
    } catch (const Error&) {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

std::int64_t newest_step(const std::optional<fs::path>& output_dir) {
  if (!output_dir || !fs::is_directory(*output_dir)) return -1;
  const auto steps = checkpoint_steps(*output_dir);
  return steps.empty() ? -1 : steps.front();
}

int supervise(const std::vector<std::string>& command, const RestartPolicy::Options& options, double grace,
              std::optional<RankCount> ranks, const std::optional<fs::path>& output_dir) {
  if (!output_dir)
    note("supervise: the command names no `heddle train RUN`; --output_dir tells where its checkpoints are");
  Supervisor supervisor(grace);
  RestartPolicy policy(options, newest_step(output_dir));
  while (true) {
    const JobEnding ending = supervisor.run(ranks ? ranks->fill(command) : command, policy.restarts());
    const std::int64_t newest = newest_step(output_dir);
    const auto decision = policy.after(ending, newest, ranks && ranks->can_shrink());
    if (!decision.restarts) {
      if (decision.exit_code == 1) fail("supervise: {}", decision.text);
      if (!decision.text.empty()) warning("supervise: {}", decision.text);
      return decision.exit_code;
    }
    warning("supervise: {}", decision.text);
    if (ranks && ranks->shrinks_after(newest)) {
      warning("supervise: from here on with {} rank{}, {} micro-batches each in a step", ranks->ranks(),
              ranks->ranks() == 1 ? "" : "s", ranks->accumulation());
    }
    if (const int signal = supervisor.pause(decision.delay); signal != 0) return kSignalled + signal;
  }
}

}  // namespace

void add_supervise(CLI::App& program, Outcome& outcome) {
  struct Options {
    RestartPolicy::Options policy;
    double grace = 60;
    std::string output_dir;
    std::int64_t ranks = 0, min_ranks = 1, micro_batches = 0;  // 0: not given

    std::optional<RankCount> rank_count(const std::vector<std::string>& words) const {
      const bool has_place = std::any_of(words.begin(), words.end(), [](const std::string& word) {
        return word.find("{ranks}") != std::string::npos;
      });
      if (ranks == 0) return std::nullopt;
      if (!has_place) throw UsageError("--ranks is set, but COMMAND has no {ranks} in it");
      return RankCount(ranks, min_ranks, micro_batches == 0 ? ranks : micro_batches);
    }
  };
  auto options = std::make_shared<Options>();
  auto* command = program.add_subcommand("supervise", "restart a training job that fails, from its newest checkpoint");
  command->add_option("--max_restarts", options->policy.max_restarts, "restarts without a newer checkpoint (10)")
      ->check(whole_number(0, 1000000));
  command->add_option("--min_uptime", options->policy.min_uptime, "seconds; a job that ends sooner failed at once (10)")
      ->check(at_least_0());
  command->add_option("--restart_delay", options->policy.delay, "seconds before the first restart, then doubled (1)")
      ->check(at_least_0());
  command->add_option("--grace", options->grace, "seconds for what a failed job leaves running to save and end (60)")
      ->check(at_least_0());
  command->add_option("--output_dir", options->output_dir, "where the job's checkpoints are (as its run file says)");
  constexpr std::int64_t kMost = std::int64_t{1} << 20;
  auto* ranks = command->add_option("--ranks", options->ranks, "ranks that COMMAND starts, as {ranks} in its words")
                    ->check(whole_number(1, kMost));
  command->add_option("--min_ranks", options->min_ranks, "fewest ranks to go on with when more fail (1)")
      ->check(whole_number(1, kMost))
      ->needs(ranks);
  command
      ->add_option("--micro_batches", options->micro_batches,
                   "micro-batches of a step on all ranks together (ranks); {accumulation}: on each")
      ->check(whole_number(1, kMost))
      ->needs(ranks);
  command->footer("heddle supervise [--max_restarts N] [--ranks N [--min_ranks N] [--micro_batches N]] -- COMMAND ...");
  command->allow_extras();
  command->callback([command, options, &outcome] {
    if (const auto words = command->remaining(); !words.empty()) {
      throw UsageError(fmt::format("supervise: {} is no option; COMMAND stands behind --: heddle supervise -- {}",
                                   words.front(), fmt::join(words, " ")));
    }
    if (outcome.behind_dashes.empty()) throw UsageError("COMMAND is missing: heddle supervise -- COMMAND ...");
    const auto count = options->rank_count(outcome.behind_dashes);
    const auto& words = outcome.behind_dashes;
    const auto output_dir = options->output_dir.empty() ? output_dir_of(count ? count->fill(words) : words)
                                                        : std::optional<fs::path>(options->output_dir);
    outcome.exit_code = supervise(words, options->policy, options->grace, count, output_dir);
  });
}

}  // namespace heddle::cli
