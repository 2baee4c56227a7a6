#include "train/signals.h"

#include <atomic>
#include <csignal>

namespace heddle {
namespace {

volatile std::sig_atomic_t received_signal = 0;
std::atomic<bool> save_request = false;  // several threads may take it
static_assert(std::atomic<bool>::is_always_lock_free, "a handler may not wait for a lock");

void remember(int number) {
  received_signal = number;
  std::signal(number, SIG_DFL);  // whoever asks again does not want to wait for a checkpoint
}

void request_save(int) { save_request = true; }

}  // namespace

SignalWatch::SignalWatch() {
  received_signal = 0;
  save_request = false;
  std::signal(SIGINT, remember);
  std::signal(SIGTERM, remember);
  hangup_ = std::signal(SIGHUP, remember);
  if (hangup_ == SIG_IGN) std::signal(SIGHUP, SIG_IGN);  // nohup: the run outlives its terminal
  user_ = std::signal(SIGUSR1, request_save);
  pipe_ = std::signal(SIGPIPE, SIG_IGN);
}

SignalWatch::~SignalWatch() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  std::signal(SIGHUP, hangup_);
  std::signal(SIGUSR1, user_);
  std::signal(SIGPIPE, pipe_);
}

int SignalWatch::received() { return received_signal; }

bool SignalWatch::take_save_request() { return save_request.exchange(false); }

std::string_view SignalWatch::name_of(int number) {
  return number == SIGINT ? "SIGINT" : number == SIGHUP ? "SIGHUP" : "SIGTERM";
}

}  // namespace heddle
