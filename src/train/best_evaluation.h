#pragma once

#include <cstdint>
#include <limits>

#include "formats/json.h"
#include "formats/json_reader.h"

namespace heddle {

/// The evaluation with the least loss so far, and how many came after it: what early_stopping_patience and
/// load_best_model_at_end go by. As Hugging Face's EarlyStoppingCallback with a threshold of 0: an equal loss is no
/// better, nor is one that is not finite.
struct BestEvaluation {
  std::int64_t step = 0;  ///< 0: none yet
  double loss = std::numeric_limits<double>::infinity();
  std::int64_t evaluations_since = 0;  ///< in a row, none of them better

  /// Counts the evaluation after `at_step`. True: it is the new best.
  bool add(std::int64_t at_step, double its_loss);
  bool is_known() const { return step > 0; }
  /// Whether a run of that early_stopping_patience ends here; 0: never.
  bool is_past(std::int64_t patience) const { return patience > 0 && evaluations_since >= patience; }
  bool operator==(const BestEvaluation&) const = default;
};

/// What a checkpoint's state says under "best_evaluation".
Json best_document(const BestEvaluation& best);
/// Reads it from the state document; none where an older version, which has no such member, saved the state.
/// `last_step` is the checkpoint's.
BestEvaluation read_best(const JsonReader& state, std::int64_t last_step);

}  // namespace heddle
