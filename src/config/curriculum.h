#pragma once

#include <cstdint>
#include <vector>

namespace heddle {

/// How long rows may be in a step: DeepSpeed's curriculum_learning of the type seqlen, which starts with short ones
/// (Li, Zhang, He 2022, arXiv:2108.06084).
struct CurriculumConfig {
  bool is_enabled = false;
  std::int64_t min_difficulty = 0, max_difficulty = 0;  // positions of a row
  // fixed_linear (root_degree 1) and fixed_root.
  std::int64_t total_steps = 0, difficulty_step = 1;
  double root_degree = 1;
  // fixed_discrete: difficulties[i] up to step max_steps[i], the last one after all of them.
  std::vector<std::int64_t> difficulties, max_steps;

  /// Positions of a row in optimizer step `step`, from 1, by the formulas of DeepSpeed's CurriculumScheduler.
  std::int64_t length_at(std::int64_t step) const;
  /// Positions of a row in the end.
  std::int64_t last_length() const;
};

}  // namespace heddle
