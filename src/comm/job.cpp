#include "comm/job.h"

#include <array>
#include <charconv>
#include <cstdlib>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "comm/launcher.h"

namespace heddle {
namespace {

std::optional<int> read_variable(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) return std::nullopt;
  const std::string_view view(text);
  int value = 0;
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), value);
  if (error != std::errc() || end != view.data() + view.size() || value < 0) return std::nullopt;
  return value;
}

}  // namespace

std::optional<Launch> find_launch() {
  const int slurm_size = read_variable("SLURM_STEP_NUM_TASKS").value_or(0);
  struct Variables {
    const char *rank, *size;
  };
  constexpr std::array<Variables, 4> known = {{{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                               {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
                                               {"PMI_RANK", "PMI_SIZE"},
                                               {"PMIX_RANK", "SLURM_STEP_NUM_TASKS"}}};
  for (const Variables& variables : known) {
    const auto rank = read_variable(variables.rank);
    if (!rank) continue;
    // Slurm's PMI-2 and PMIx leave the number of processes to a call, and set their own variable.
    return Launch{*rank, read_variable(variables.size).value_or(slurm_size), variables.rank};
  }
  if (slurm_size > 1) {
    fail("srun started {} processes without PMI, so they cannot meet; expected srun --mpi=pmix, or --mpi=pmi2",
         slurm_size);
  }
  return std::nullopt;
}

bool is_launched() { return find_launch().has_value(); }

int launched_rank() {
  const auto launch = find_launch();
  return launch ? launch->rank : 0;
}

int launched_size() {
  const auto launch = find_launch();
  return launch && launch->size > 0 ? launch->size : 1;
}

int run_job(int ranks, const std::function<int(Communicator&)>& body, const JobOptions& options) {
  if (const auto launch = find_launch()) {
    if (ranks > 0 && launch->size > 0 && ranks != launch->size) {
      fail("ranks is {}, but the launcher started {} processes ({})", ranks, launch->size, launch->launcher);
    }
    return run_mpi(*launch, body, options);
  }
  return run_ranks(ranks == 0 ? 1 : ranks, body, options);
}

void abort_job(std::string_view message) {
  log_error(message);
  abort_mpi();
  std::_Exit(1);
}

}  // namespace heddle
