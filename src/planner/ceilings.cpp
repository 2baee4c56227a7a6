#include "planner/ceilings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <ctime>
#include <fstream>

#include "base/error.h"
#include "base/log.h"
#include "base/threads.h"
#include "formats/files.h"
#include "train/run_setup.h"

namespace heddle {
namespace {

std::string now_utc() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                     parts.tm_hour, parts.tm_min, parts.tm_sec);
}

}  // namespace

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    // x86 says "model name"; some other processors say nothing but numbers.
    if (!line.starts_with("model name") && !line.starts_with("Model") && !line.starts_with("cpu model")) continue;
    const auto colon = line.find(':');
    const auto begin = colon == std::string::npos ? colon : line.find_first_not_of(" \t", colon + 1);
    if (begin != std::string::npos) return line.substr(begin);
  }
  return "unknown";
}

const ThreadCeilings* Ceilings::of_threads(int threads) const {
  const auto found = std::ranges::find(by_threads, threads, &ThreadCeilings::threads);
  return found == by_threads.end() ? nullptr : &*found;
}

Ceilings measure_ceilings(const std::filesystem::path& folder, const CeilingProgress& progress) {
  if (!std::filesystem::is_directory(folder)) fail("{}: no such folder", folder.string());
  constexpr double kSecondsEach = 0.15;  // of sixteen figures; a pass over the arrays takes some milliseconds
  Ceilings ceilings;
  ceilings.cpu = cpu_model();
  ceilings.cores = available_cores();
  ceilings.measured_at = now_utc();
  progress("multiply-adds and memory, one thread");
  ceilings.by_threads.push_back(measure_threads(1, kSecondsEach));
  if (ceilings.cores > 1) {
    progress(fmt::format("multiply-adds and memory, {} threads", ceilings.cores));
    ceilings.by_threads.push_back(measure_threads(ceilings.cores, kSecondsEach));
  }
  progress("products");
  ceilings.products = measure_products();
  progress(fmt::format("disk, in {}", folder.string()));
  ceilings.disk = measure_disk(folder);
  const int ranks = std::max(2, ceilings.cores);
  progress(fmt::format("collectives over {} threads as ranks", ranks));
  ceilings.collectives = measure_collectives(ranks);
  return ceilings;
}

std::filesystem::path ceilings_cache_path() {
  const auto folder = default_cache_folder();
  if (folder.empty()) return {};
  std::string name = fmt::format("ceilings-{}-{}", cpu_model(), available_cores());
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0 && c != '-' && c != '.'; }, '_');
  return folder / (name + ".json");
}

std::optional<Ceilings> cached_ceilings() {
  const auto path = ceilings_cache_path();
  std::error_code error;
  if (path.empty() || !std::filesystem::exists(path, error)) return std::nullopt;
  try {
    Ceilings ceilings = read_ceilings(read_json_file(path), path.string());
    if (ceilings.cpu == cpu_model() && ceilings.cores == available_cores()) return ceilings;
  } catch (const Error& damaged) {
    warning("{}; heddle bench writes it anew", damaged.what());
  }
  return std::nullopt;
}

void cache_ceilings(const Ceilings& ceilings) {
  const auto path = ceilings_cache_path();
  if (path.empty()) {
    note("neither XDG_CACHE_HOME nor HOME is set: these ceilings are not kept for other commands");
    return;
  }
  try {
    make_folder(path.parent_path());
    write_text_file(path, ceilings_document(ceilings).dump(2) + "\n");
  } catch (const Error& failure) {
    warning("these ceilings are not kept for other commands: {}", failure.what());
  }
}

}  // namespace heddle
