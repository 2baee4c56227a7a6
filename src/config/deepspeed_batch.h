#pragma once

#include <string_view>

#include "config/deepspeed_reader.h"

namespace heddle {

/// train_batch_size, train_micro_batch_size_per_gpu or gradient_accumulation_steps.
bool is_batch_key(std::string_view path);

/// The batch triple: train_batch_size = micro batch x accumulation x data-parallel ranks. Of what the JSON leaves out,
/// the run file's keys are taken where they are set, then DeepSpeed's rules; "auto" is the run file's key. Sets the
/// triple below `deepspeed` and the run file's two keys. Throws Error for a contradiction.
void resolve_batch(const DeepSpeedReader& reader, RunSettings& settings);

}  // namespace heddle
