#pragma once

#include "config/run_config.h"

namespace heddle {

/// Trains as the run file says and writes output_dir. Returns 0, or 130 / 143 when a signal (SIGINT / SIGTERM) stopped
/// it after a checkpoint of the last step that was reported.
int train(const RunFile& run);

}  // namespace heddle
