#pragma once

#include <string_view>

namespace heddle {

/// While it lives, SIGINT, SIGTERM and SIGHUP (the terminal is gone) are noted instead of ending the process; a second
/// one of the same kind ends it. SIGHUP stays ignored where it was. SIGPIPE is ignored: a run outlives the reader of
/// its progress.
class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;
  /// The number of the signal that came, or 0.
  static int received();
  static std::string_view name_of(int number);

 private:
  void (*hangup_)(int) = nullptr;  // handlers from before
  void (*pipe_)(int) = nullptr;
};

}  // namespace heddle
