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
}

SignalWatch::~SignalWatch() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

int SignalWatch::received() { return received_signal; }

}  // namespace heddle
