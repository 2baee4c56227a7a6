#include "mpi_scenes.h"

#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "collectives.h"
#include "comm/job.h"

namespace heddle {
namespace {

using std::chrono::milliseconds;

/// Writes OUTPUT.RANK: what came out of each check, a line each.
int write_outcomes(Communicator& communicator, const std::string& output) {
  std::ofstream file(fmt::format("{}.{}", output, communicator.rank()));
  for (const auto& outcome : collectives::check_all(communicator)) {
    file << fmt::format("{:016x} {}\n", outcome.digest, outcome.name);
  }
  return 0;
}

int run(Communicator& communicator, const std::string& name, const std::string& output) {
  if (name == "outcomes") return write_outcomes(communicator, output);
  if (name == "code") return communicator.rank() == 1 ? 7 : 0;
  if (name == "failure") {
    if (communicator.rank() == 1) fail("rows.jsonl:9: no such token");
    communicator.barrier("steps");
    return 0;
  }
  if (name == "stall") {
    communicator.barrier();  // so that the others arrive together
    if (communicator.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(60));
    float value = 1;
    communicator.all_reduce(std::span(&value, 1), Reduction::sum, "loss");
    return 0;
  }
  if (name == "death") {
    communicator.barrier();
    if (communicator.rank() == 1) std::raise(SIGKILL);
    communicator.barrier("steps");
    return 0;
  }
  if (name == "size") {  // ranks bring different sizes
    std::vector<std::byte> bytes(communicator.rank() == 1 ? 2000 : 1000);
    communicator.broadcast(bytes, 0, "embedding");
    return 0;
  }
  fail("no scene {}", name);
}

}  // namespace

int run_scene(const std::string& name, const std::string& output) {
  try {
    JobOptions options;
    if (name == "stall") options.time_limit = milliseconds(2000);
    return run_job(
        name == "ranks" ? 5 : 0, [&](Communicator& communicator) { return run(communicator, name, output); }, options);
  } catch (const std::exception& error) {
    log_error(error.what());
    return 1;
  }
}

}  // namespace heddle
