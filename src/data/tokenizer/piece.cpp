#include "data/tokenizer/piece.h"

#include <algorithm>

namespace heddle {
namespace {

/// A match joins what was kept last, unless that was a match too.
std::vector<Stretch> merge_matches(const std::vector<Stretch>& stretches, bool backward) {
  std::vector<Stretch> kept;
  bool previous_match = false;
  for (const Stretch& stretch : stretches) {
    if (stretch.is_match && !previous_match && !kept.empty()) {
      (backward ? kept.back().begin : kept.back().end) = backward ? stretch.begin : stretch.end;
    } else {
      kept.push_back(stretch);
    }
    previous_match = stretch.is_match;
  }
  return kept;
}

std::vector<Stretch> join_equal(const std::vector<Stretch>& stretches) {
  std::vector<Stretch> kept;
  bool previous_match = false;
  for (const Stretch& stretch : stretches) {
    if (stretch.is_match == previous_match && !kept.empty()) {
      kept.back().end = stretch.end;
    } else {
      kept.push_back(stretch);
    }
    previous_match = stretch.is_match;
  }
  return kept;
}

}  // namespace

SplitBehavior read_split_behavior(const JsonEntry& entry) {
  static constexpr std::string_view names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext",
                                               "Contiguous"};
  return static_cast<SplitBehavior>(entry.one_of(names));
}

std::vector<Stretch> apply_behavior(std::vector<Stretch> stretches, SplitBehavior behavior) {
  switch (behavior) {
    case SplitBehavior::isolated: return stretches;
    case SplitBehavior::removed:
      std::erase_if(stretches, [](const Stretch& s) { return s.is_match; });
      return stretches;
    case SplitBehavior::contiguous: return join_equal(stretches);
    case SplitBehavior::merged_with_previous: return merge_matches(stretches, false);
    case SplitBehavior::merged_with_next:
      std::reverse(stretches.begin(), stretches.end());
      stretches = merge_matches(stretches, true);
      std::reverse(stretches.begin(), stretches.end());
      return stretches;
  }
  return stretches;
}

}  // namespace heddle
