#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "formats/json.h"
#include "formats/json_reader.h"

namespace heddle {

/// What a run remembers to tell a loss spike (rewind_on_spike), and how often it went back for one. It is a part of the
/// training state, so that a run that was stopped decides as one that was not.
struct LossWatch {
  static constexpr std::size_t kMostLosses = 32, kFewestLosses = 8;

  std::vector<double> losses;     ///< the newest, all finite and none a spike; the oldest first
  std::int64_t rewinds = 0;       ///< in the whole run
  std::int64_t skipped_rows = 0;  ///< by them, in all

  /// The middle loss, or the mean of the two in the middle; none before there are kFewestLosses.
  std::optional<double> median() const;
  bool is_spike(double loss, double factor) const;
  /// Remembers a loss; one that is not finite is left out.
  void add(double loss);
  bool operator==(const LossWatch&) const = default;
};

/// What a checkpoint's state says under "loss_watch".
Json loss_watch_document(const LossWatch& watch);
/// Reads it from the state document; an empty one where an older version saved the state.
LossWatch read_loss_watch(const JsonReader& state);

}  // namespace heddle
