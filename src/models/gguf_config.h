#pragma once

#include <string>

#include "formats/gguf.h"

namespace heddle {

/// The config.json that a Hugging Face folder with this model would have: every key that parse_model_config() reads and
/// that other tools ask for. Throws Error naming the file and the key for an architecture that is not supported and for
/// keys that change what the model computes in a way that no supported family has.
std::string gguf_model_config(const GgufFile& file);

/// Tensors of the file that say something of the configuration and are no weights: factors of the rope.
bool is_gguf_config_tensor(std::string_view name);

}  // namespace heddle
