#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace heddle {
namespace {

spdlog::logger& logger() {
  static const auto instance = [] {
    auto made = std::make_shared<spdlog::logger>("heddle", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("heddle: %v");
    made->flush_on(spdlog::level::info);
    return made;
  }();
  return *instance;
}

thread_local bool is_muted = false;

}  // namespace

void mute_thread_log() { is_muted = true; }

void log_note(std::string_view text) {
  if (!is_muted) logger().info("note: {}", text);
}
void log_warning(std::string_view text) {
  if (!is_muted) logger().warn("warning: {}", text);
}
void log_error(std::string_view text) { logger().error("error: {}", text); }

}  // namespace heddle
