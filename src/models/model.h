#pragma once

#include <string>
#include <vector>

#include "models/model_config.h"
#include "ops/emitter.h"

namespace heddle {

/// Emits the forward of the whole model: unit "embedding", units "block 0".., unit "head".
void emit_model(Emitter& e, const ModelConfig& c);

/// Numbers of ids, rising, up to which the keys of a document may be cached as they were rotated: longrope rotates all
/// of them anew beyond.
std::vector<std::int64_t> key_cache_limits(const ModelConfig& c);

/// The prefix of the base model's names ("model.", "transformer."), which some published files leave out.
std::string base_model_prefix(const ModelConfig& c);

}  // namespace heddle
