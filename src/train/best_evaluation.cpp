#include "train/best_evaluation.h"

#include <cmath>

namespace heddle {

bool BestEvaluation::add(std::int64_t at_step, double its_loss) {
  if (!std::isfinite(its_loss) || its_loss >= loss) {
    ++evaluations_since;
    return false;
  }
  *this = {.step = at_step, .loss = its_loss, .evaluations_since = 0};
  return true;
}

Json best_document(const BestEvaluation& best) {
  return {{"step", best.step},
          {"loss", best.is_known() ? Json(best.loss) : Json(nullptr)},  // JSON has no infinity
          {"evaluations_since", best.evaluations_since}};
}

BestEvaluation read_best(const JsonReader& state, std::int64_t last_step) {
  BestEvaluation best;
  if (!state.has("best_evaluation")) return best;
  const JsonReader reader = state.object("best_evaluation");
  best.step = reader.integer("step", 0, last_step);
  if (best.is_known()) best.loss = reader.number("loss");
  best.evaluations_since = reader.integer("evaluations_since", 0, last_step);
  return best;
}

}  // namespace heddle
