#pragma once

#include <fmt/format.h>

#include <string_view>

namespace heddle {

/// Lines on standard error, `heddle: note: ...` and `heddle: warning: ...`; thread-safe, one write each.
void log_note(std::string_view text);
void log_warning(std::string_view text);
void log_error(std::string_view text);

/// Drops the notes and warnings of this thread from now on: for ranks that would repeat what rank 0 says.
void mute_thread_log();

template <typename... Args>
void note(fmt::format_string<Args...> format, Args&&... args) {
  log_note(fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void warning(fmt::format_string<Args...> format, Args&&... args) {
  log_warning(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace heddle
