#include "train/loss_watch.h"

#include <algorithm>
#include <cmath>

namespace heddle {

std::optional<double> LossWatch::median() const {
  if (losses.size() < kFewestLosses) return std::nullopt;
  std::vector<double> sorted = losses;
  std::sort(sorted.begin(), sorted.end());
  const std::size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

bool LossWatch::is_spike(double loss, double factor) const {
  const auto usual = median();
  return usual && loss > factor * *usual;
}

void LossWatch::add(double loss) {
  if (!std::isfinite(loss)) return;
  if (losses.size() == kMostLosses) losses.erase(losses.begin());
  losses.push_back(loss);
}

Json loss_watch_document(const LossWatch& watch) {
  return {{"losses", watch.losses}, {"rewinds", watch.rewinds}, {"skipped_rows", watch.skipped_rows}};
}

LossWatch read_loss_watch(const JsonReader& state) {
  LossWatch watch;
  if (!state.has("loss_watch")) return watch;
  const JsonReader reader = state.object("loss_watch");
  const Json* losses = reader.find("losses");
  const auto is_number = [](const Json& loss) { return loss.is_number(); };
  if (losses == nullptr || !losses->is_array() || losses->size() > LossWatch::kMostLosses ||
      !std::all_of(losses->begin(), losses->end(), is_number)) {
    reader.refuse("losses", "a list of at most 32 numbers");
  }
  for (const Json& loss : *losses) watch.losses.push_back(loss.get<double>());
  watch.rewinds = reader.integer("rewinds", 0, INT64_MAX);
  watch.skipped_rows = reader.integer("skipped_rows", 0, INT64_MAX);
  return watch;
}

}  // namespace heddle
