#pragma once

#include <string>

#include "models/model_config.h"
#include "ops/emitter.h"

namespace heddle {

/// Emits the forward of the whole model: unit "embedding", units "block 0".., unit "head". `max_length` is the longest
/// document that the program will see (longrope chooses its factors by it).
void emit_model(Emitter& e, const ModelConfig& c, std::int64_t max_length);

/// The prefix of the base model's names ("model.", "transformer."), which some published files leave out.
std::string base_model_prefix(const ModelConfig& c);

}  // namespace heddle
