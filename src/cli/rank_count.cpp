#include "cli/rank_count.h"

#include <string_view>

#include "base/error.h"

namespace heddle::cli {
namespace {

void replace_all(std::string& text, std::string_view placeholder, std::int64_t number) {
  const std::string digits = std::to_string(number);
  for (std::size_t at = text.find(placeholder); at != std::string::npos;
       at = text.find(placeholder, at + digits.size()))
    text.replace(at, placeholder.size(), digits);
}

}  // namespace

RankCount::RankCount(std::int64_t ranks, std::int64_t least, std::int64_t micro_batches)
    : ranks_(ranks), least_(least), micro_batches_(micro_batches) {
  if (least > ranks) throw UsageError(fmt::format("--min_ranks is {}; expected at most --ranks, {}", least, ranks));
  if (micro_batches % ranks != 0) {
    throw UsageError(fmt::format("--micro_batches is {}; expected a multiple of --ranks, {}", micro_batches, ranks));
  }
}

std::int64_t RankCount::smaller() const {
  for (std::int64_t ranks = ranks_ - 1; ranks >= least_; --ranks) {
    if (micro_batches_ % ranks == 0) return ranks;
  }
  return 0;
}

bool RankCount::shrinks_after(std::int64_t newest_step) {
  if (newest_step > newest_step_) failures_ = 0;
  newest_step_ = newest_step;
  if (++failures_ < 2 || !can_shrink()) return false;
  ranks_ = smaller();
  failures_ = 0;
  return true;
}

std::vector<std::string> RankCount::fill(std::vector<std::string> command) const {
  for (auto& word : command) {
    replace_all(word, "{ranks}", ranks_);
    replace_all(word, "{accumulation}", accumulation());
  }
  return command;
}

}  // namespace heddle::cli
