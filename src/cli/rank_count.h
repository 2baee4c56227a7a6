#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::cli {

/// With how many ranks a supervised job starts: with all, or with fewer once these have failed again and again, as when
/// a host is gone. Every count divides the micro-batches of a step, so that the global batch stays what it was.
class RankCount {
 public:
  /// `micro_batches`: of all ranks together in one step. Throws UsageError where ranks do not divide them.
  RankCount(std::int64_t ranks, std::int64_t least, std::int64_t micro_batches);

  std::int64_t ranks() const { return ranks_; }
  std::int64_t accumulation() const { return micro_batches_ / ranks_; }
  /// Whether there are fewer to start with.
  bool can_shrink() const { return smaller() > 0; }
  /// The job failed. True: it is the second time in a row with so many ranks and no newer checkpoint, and from now on
  /// there are fewer.
  bool shrinks_after(std::int64_t newest_step);

  /// The command, with numbers for {ranks} and {accumulation} in its words.
  std::vector<std::string> fill(std::vector<std::string> command) const;

 private:
  /// The next smaller number that divides; 0: none.
  std::int64_t smaller() const;

  std::int64_t ranks_, least_, micro_batches_;
  std::int64_t newest_step_ = -1;
  int failures_ = 0;  // with so many ranks, without a newer checkpoint
};

}  // namespace heddle::cli
