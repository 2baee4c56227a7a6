#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf_metadata.h"
#include "models/model_config.h"

namespace heddle {

/// A tensor that a GGUF model has and a Hugging Face folder has not: factors by which rope frequencies are divided.
struct RopeFactorTensor {
  std::string name;
  std::vector<float> values;
};

/// Adds what llama.cpp's converter says of a model under ARCHITECTURE.*: sizes, rope, norms, windows, scales.
/// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
void add_gguf_model_keys(const ModelConfig& config, std::string_view architecture, GgufMetadata& metadata);

std::vector<RopeFactorTensor> gguf_rope_factors(const ModelConfig& config);

/// What computes differently in `got`, a model read back from GGUF, than in `want`: "rope at 4096 positions"; "" if
/// nothing does. GGUF holds numbers as fp32.
std::string gguf_difference(const ModelConfig& want, const ModelConfig& got);

}  // namespace heddle
