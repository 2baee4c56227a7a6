#pragma once

#include <string_view>

namespace heddle {

/// While it lives, SIGINT, SIGTERM and SIGHUP (the terminal is gone) are noted instead of ending the process; a second
/// one of the same kind ends it. SIGHUP stays ignored where it was. SIGUSR1 asks for a checkpoint, as often as it
/// comes; training goes on. SIGPIPE is ignored: a run outlives the reader of its progress.
class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;
  /// The number of the signal that came to stop the run, or 0.
  static int received();
  /// Whether SIGUSR1 came since this was last asked.
  static bool take_save_request();
  static std::string_view name_of(int number);

 private:
  void (*hangup_)(int) = nullptr;  // handlers from before
  void (*user_)(int) = nullptr;
  void (*pipe_)(int) = nullptr;
};

}  // namespace heddle
