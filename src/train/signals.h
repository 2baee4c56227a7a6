#pragma once

namespace heddle {

/// While it lives, SIGINT and SIGTERM are noted instead of ending the process; a second one of the same kind ends it.
class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;
  /// The number of the signal that came, or 0.
  static int received();
};

}  // namespace heddle
