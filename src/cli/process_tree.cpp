#include "cli/process_tree.h"

#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;

struct Status {
  pid_t parent = 0;
  std::string name;
  bool is_zombie = false;
};

/// /proc/ID/stat: "ID (NAME) STATE PARENT ..."; none for a process that is gone, be it between opening and reading.
std::optional<Status> status_of(pid_t id) {
  std::ifstream file(fs::path("/proc") / std::to_string(id) / "stat");
  std::string text;
  std::getline(file, text, '\0');  // to its end; an iterator over the stream would throw where reading fails
  const std::size_t open = text.find('('), close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos) return std::nullopt;
  Status status;
  status.name = text.substr(open + 1, close - open - 1);
  std::istringstream rest(text.substr(close + 1));
  char state = 0;
  if (!(rest >> state >> status.parent)) return std::nullopt;
  status.is_zombie = state == 'Z';
  return status;
}

std::map<pid_t, Status> all_processes() {
  std::map<pid_t, Status> all;
  for (const auto& entry : fs::directory_iterator("/proc", fs::directory_options::skip_permission_denied)) {
    const std::string name = entry.path().filename().string();
    pid_t id = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), id);
    if (error != std::errc() || end != name.data() + name.size()) continue;
    if (auto status = status_of(id); status && !status->is_zombie) all.emplace(id, std::move(*status));
  }
  return all;
}

void reap() {
  while (::waitpid(-1, nullptr, WNOHANG) > 0) {
  }
}

}  // namespace

std::vector<TreeProcess> processes_below(pid_t root) {
  const auto all = all_processes();
  const auto is_below = [&](pid_t id) {
    for (int depth = 0; depth < 1000; ++depth) {  // a process that ends meanwhile may leave a ring
      const auto found = all.find(id);
      if (found == all.end()) return false;
      if (found->second.parent == root) return true;
      id = found->second.parent;
    }
    return false;
  };
  std::vector<TreeProcess> below;
  for (const auto& [id, status] : all) {
    if (is_below(id)) below.push_back({id, status.name});
  }
  return below;
}

void signal_processes_below(pid_t root, int signal) {
  for (const auto& process : processes_below(root)) ::kill(process.id, signal);
}

void signal_ranks_below(pid_t root, int signal) {
  const auto own = status_of(::getpid());
  bool has_ranks = false;
  for (const auto& process : processes_below(root)) {
    if (!own || process.name != own->name) continue;
    ::kill(process.id, signal);
    has_ranks = true;
  }
  if (!has_ranks) signal_processes_below(root, signal);
}

void end_processes_below(pid_t root, double seconds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  reap();
  while (!processes_below(root).empty() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    reap();
  }
  // What starts another process between the look and the kill is found by the next look.
  while (!processes_below(root).empty()) {
    signal_processes_below(root, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    reap();
  }
}

}  // namespace heddle::cli
