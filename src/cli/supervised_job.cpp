#include "cli/supervised_job.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "cli/process_tree.h"

namespace heddle::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD}) sigaddset(&set, signal);
  struct sigaction hangup {};
  ::sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaddset(&set, SIGHUP);  // nohup: the job outlives its terminal
  return set;
}

/// Passes standard error through and keeps the line that tells most.
class ErrorLines {
 public:
  /// False at the end.
  bool read_from(int descriptor) {
    std::array<char, 4096> block;
    const ssize_t count = ::read(descriptor, block.data(), block.size());
    if (count < 0) return errno == EINTR || errno == EAGAIN;
    if (count == 0) return false;
    const std::string_view text(block.data(), static_cast<std::size_t>(count));
    for (std::string_view rest = text; !rest.empty();) {
      const ssize_t written = ::write(STDERR_FILENO, rest.data(), rest.size());
      if (written <= 0 && errno != EINTR) break;  // nobody listens; the job goes on
      if (written > 0) rest.remove_prefix(static_cast<std::size_t>(written));
    }
    for (const char c : text) add(c);
    return true;
  }
  std::string last() {
    add('\n');
    return last_error_.empty() ? last_ : last_error_;
  }

 private:
  void add(char c) {
    constexpr std::size_t kLongest = 1000;
    if (c != '\n' && c != '\r') {
      if (line_.size() < kLongest) line_ += c;
      return;
    }
    if (line_.starts_with("heddle: error:")) last_error_ = line_;
    if (line_.find_first_not_of(" \t-") != std::string::npos) last_ = line_;
    line_.clear();
  }
  std::string line_, last_, last_error_;
};

/// A pipe whose ends close when this goes.
class Pipe {
 public:
  Pipe() {
    if (::pipe2(ends_.data(), O_CLOEXEC) != 0) fail("supervise: no pipe can be made: {}", std::strerror(errno));
  }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  int end(std::size_t which) const { return ends_[which]; }
  void close_end(std::size_t which) {
    if (ends_[which] >= 0) ::close(ends_[which]);
    ends_[which] = -1;
  }

 private:
  std::array<int, 2> ends_ = {-1, -1};
};

/// In the child: becomes the command, or says through `failure` why it cannot.
[[noreturn]] void become(std::vector<char*>& words, pid_t supervisor, int error_output, int failure) {
  // A group of its own: Ctrl-C on a terminal reaches the supervisor alone, which passes it on once.
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  const sigset_t set = watched_signals();
  ::sigprocmask(SIG_UNBLOCK, &set, nullptr);
  if (::getppid() != supervisor) ::raise(SIGTERM);              // it went before prctl
  const int input = ::open("/dev/null", O_RDONLY | O_CLOEXEC);  // a group in the background may not read the terminal
  ::dup2(input, STDIN_FILENO);
  ::dup2(error_output, STDERR_FILENO);
  ::execvp(words[0], words.data());
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(failure, &error, sizeof error);
  ::_exit(127);
}

pid_t start(const std::vector<std::string>& command, int restarts, int error_output) {
  Pipe failure;
  const pid_t supervisor = ::getpid();
  ::setenv("HEDDLE_RESTART_COUNT", std::to_string(restarts).c_str(), 1);
  std::vector<char*> words;  // what the child needs is ready before the fork
  words.reserve(command.size() + 1);
  for (const auto& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const pid_t child = ::fork();
  if (child < 0) fail("supervise: no process can be started: {}", std::strerror(errno));
  if (child == 0) become(words, supervisor, error_output, failure.end(1));
  failure.close_end(1);
  int error = 0;
  if (::read(failure.end(0), &error, sizeof error) == sizeof error) {
    ::waitpid(child, nullptr, 0);
    fail("{}: cannot be started: {}", command.front(), std::strerror(error));
  }
  return child;
}

/// The number of a signal that waits; 0 where none does.
int take_signal(int descriptor) {
  signalfd_siginfo info{};
  return ::read(descriptor, &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
}

}  // namespace

Supervisor::Supervisor(double grace) : grace_(grace) {
  const sigset_t set = watched_signals();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  signals_ = ::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  if (signals_ < 0) fail("supervise: signals cannot be waited for: {}", std::strerror(errno));
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

Supervisor::~Supervisor() {
  ::close(signals_);
  const sigset_t set = watched_signals();
  ::sigprocmask(SIG_UNBLOCK, &set, nullptr);
}

JobEnding Supervisor::run(const std::vector<std::string>& command, int restarts) {
  const auto started = Clock::now();
  Pipe errors;
  const pid_t child = start(command, restarts, errors.end(1));
  errors.close_end(1);
  ErrorLines lines;
  JobEnding ending;
  bool is_open = true;
  for (bool has_ended = false; !has_ended;) {
    std::array<pollfd, 2> waiting = {{{signals_, POLLIN, 0}, {is_open ? errors.end(0) : -1, POLLIN, 0}}};
    ::poll(waiting.data(), waiting.size(), -1);
    if (waiting[1].revents != 0) is_open = lines.read_from(errors.end(0));
    while (const int signal = take_signal(signals_)) {
      if (signal == SIGCHLD) continue;
      if (signal == SIGUSR1) {
        signal_ranks_below(::getpid(), signal);  // asks for a checkpoint
        continue;
      }
      ending.passed_signal == 0 ? signal_ranks_below(::getpid(), signal) : signal_processes_below(::getpid(), signal);
      ending.passed_signal = signal;
    }
    int status = 0;
    for (pid_t ended = 1; ended > 0;) {  // orphans of the job are children by now
      ended = ::waitpid(-1, &status, WNOHANG);
      if (ended != child) continue;
      has_ended = true;
      ending.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
      ending.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    }
  }
  ending.seconds = seconds_since(started);
  if (ending.passed_signal == 0) signal_ranks_below(::getpid(), SIGTERM);  // a second one would end them
  end_processes_below(::getpid(), grace_);
  ::fcntl(errors.end(0), F_SETFL, O_NONBLOCK);
  for (pollfd left = {errors.end(0), POLLIN, 0}; is_open && ::poll(&left, 1, 0) > 0;)
    is_open = lines.read_from(errors.end(0));
  ending.last_line = lines.last();
  return ending;
}

int Supervisor::pause(double seconds) const {
  const auto started = Clock::now();
  for (double left = seconds;; left = seconds - seconds_since(started)) {
    while (const int signal = take_signal(signals_)) {
      if (signal != SIGCHLD && signal != SIGUSR1) return signal;
    }
    if (left <= 0) return 0;
    pollfd waiting = {signals_, POLLIN, 0};
    ::poll(&waiting, 1, static_cast<int>(left * 1000) + 1);
  }
}

}  // namespace heddle::cli
