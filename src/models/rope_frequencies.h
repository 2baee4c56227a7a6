#pragma once

#include <cstdint>
#include <vector>

#include "models/model_config.h"

namespace heddle {

/// Inverse frequencies of rotary embedding (Su et al. 2021, arXiv:2104.09864), one for each pair of the first
/// int(head_dim * partial_rotary_factor) dimensions: angle = position * inv_freq; cosine and sine are multiplied by
/// attention_factor. Formulas as transformers' modeling_rope_utils.py has them, in double.
struct RopeFrequencies {
  std::vector<double> inv_freq;
  double attention_factor = 1.0;
};

/// Dimensions of a head that are rotated.
std::int64_t rotary_dimensions(const RopeConfig& rope, std::int64_t head_dim);

/// Ids up to which all documents have the same frequencies; 0: whatever their length.
std::int64_t length_of_change(const RopeConfig& rope, std::int64_t max_positions);

/// `max_positions` is the model's max_position_embeddings: the length from which dynamic stretches, unless `rope` has
/// its own. `sequence_length` (the number of ids) matters to the types that depend on it: dynamic stretches beyond
/// length_of_change, longrope takes its long factors. The type must not be
/// none.
RopeFrequencies rope_frequencies(const RopeConfig& rope, std::int64_t head_dim, std::int64_t max_positions,
                                 std::int64_t sequence_length);

}  // namespace heddle
