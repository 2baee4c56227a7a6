#pragma once

#include "config/run_config.h"
#include "train/activations.h"

namespace heddle {

/// Trains as the run file says and writes output_dir. Returns 0, or 128 + its number when a signal (SignalWatch) or a
/// time limit (143) stopped it after a checkpoint of the last step that was reported. `choose` is called where
/// `recompute` is `auto`.
int train(const RunFile& run, const ActivationChooser& choose = {});

}  // namespace heddle
