#include "config/curriculum.h"

#include <algorithm>
#include <cmath>

namespace heddle {

std::int64_t CurriculumConfig::length_at(std::int64_t step) const {
  if (!difficulties.empty()) {
    const auto place = std::lower_bound(max_steps.begin(), max_steps.end(), step) - max_steps.begin();
    return difficulties[static_cast<std::size_t>(place)];
  }
  // floor((step / total)^(1 / root) (max - min) + min), down to a multiple of difficulty_step, but not below the first
  // multiple from min on. Behind total_steps it goes on to grow, so that a maximum between two multiples is met too.
  const double part = std::pow(static_cast<double>(step) / static_cast<double>(total_steps), 1.0 / root_degree);
  const double length =
      std::floor(part * static_cast<double>(max_difficulty - min_difficulty) + static_cast<double>(min_difficulty));
  if (length >= static_cast<double>(max_difficulty + difficulty_step)) return max_difficulty;
  const std::int64_t first = (min_difficulty + difficulty_step - 1) / difficulty_step * difficulty_step;
  const auto whole = static_cast<std::int64_t>(length);
  return std::min(std::max(whole - whole % difficulty_step, first), max_difficulty);
}

std::int64_t CurriculumConfig::last_length() const {
  return difficulties.empty() ? max_difficulty : difficulties.back();
}

}  // namespace heddle
