#include "train/signals.h"

#include <csignal>

namespace heddle {
namespace {

volatile std::sig_atomic_t received_signal = 0;

void remember(int number) {
  received_signal = number;
  std::signal(number, SIG_DFL);  // whoever asks again does not want to wait for a checkpoint
}

}  // namespace

SignalWatch::SignalWatch() {
  received_signal = 0;
  std::signal(SIGINT, remember);
  std::signal(SIGTERM, remember);
  hangup_ = std::signal(SIGHUP, remember);
  if (hangup_ == SIG_IGN) std::signal(SIGHUP, SIG_IGN);  // nohup: the run outlives its terminal
  pipe_ = std::signal(SIGPIPE, SIG_IGN);
}

SignalWatch::~SignalWatch() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  std::signal(SIGHUP, hangup_);
  std::signal(SIGPIPE, pipe_);
}

int SignalWatch::received() { return received_signal; }

std::string_view SignalWatch::name_of(int number) {
  return number == SIGINT ? "SIGINT" : number == SIGHUP ? "SIGHUP" : "SIGTERM";
}

}  // namespace heddle
