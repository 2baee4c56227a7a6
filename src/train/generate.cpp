#include "train/generate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/random.h"
#include "train/stream.h"

namespace heddle {
namespace {

constexpr float kGreatest = std::numeric_limits<float>::max();

/// The tokens that top_k leaves, taken most likely first. Most draws fall among the first few of a vocabulary: the
/// others are never sorted.
class Candidates {
 public:
  Candidates(std::span<const float> logits, const SamplingOptions& options)
      : order_(logits.size()), is_less_likely_{logits} {
    std::iota(order_.begin(), order_.end(), 0);
    const auto keep = static_cast<std::size_t>(options.top_k);
    if (keep > 0 && keep < order_.size()) {
      std::nth_element(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(keep - 1), order_.end(),
                       [this](std::int32_t a, std::int32_t b) { return is_less_likely_(b, a); });
      order_.resize(keep);
      std::sort(order_.begin(), order_.end());  // sums over them have one order
    }
  }

  /// All of them, by id, until the first is taken.
  std::span<const std::int32_t> all() const { return order_; }

  std::int32_t take() {
    if (!is_heap_) std::make_heap(order_.begin(), order_.end(), is_less_likely_);
    is_heap_ = true;
    std::pop_heap(order_.begin(), order_.end(), is_less_likely_);
    const std::int32_t token = order_.back();
    order_.pop_back();
    return token;
  }
  bool empty() const { return order_.empty(); }

 private:
  struct IsLessLikely {
    std::span<const float> logits;
    bool operator()(std::int32_t a, std::int32_t b) const {
      const float x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
      return x != y ? x < y : a > b;
    }
  };
  std::vector<std::int32_t> order_;
  IsLessLikely is_less_likely_;
  bool is_heap_ = false;
};

}  // namespace

std::int32_t choose_token(std::span<const float> logits, const SamplingOptions& options, std::uint64_t draw) {
  // A logit of -infinity only is never chosen.
  const bool are_sound = std::none_of(logits.begin(), logits.end(), [](float logit) { return !(logit <= kGreatest); });
  const auto greatest = std::max_element(logits.begin(), logits.end());
  if (!are_sound || *greatest < -kGreatest) {
    fail(
        "a logit is not a finite number: the weights hold NaN or too great values (heddle inspect MODEL --stats counts "
        "them), or fp16 overflowed");
  }
  if (!options.do_sample) return static_cast<std::int32_t>(greatest - logits.begin());
  const auto weight = [&, top = static_cast<double>(*greatest)](std::int32_t token) {
    return std::exp((static_cast<double>(logits[static_cast<std::size_t>(token)]) - top) / options.temperature);
  };
  Candidates candidates(logits, options);
  double total = 0;
  for (const std::int32_t token : candidates.all()) total += weight(token);
  double place = Random(options.seed, draw).uniform();
  if (options.top_p >= 1) {
    place *= total;
    for (;;) {
      const std::int32_t token = candidates.take();
      place -= weight(token);
      if (place < 0 || candidates.empty()) return token;
    }
  }
  // top_p keeps the fewest most likely tokens whose probabilities reach it; at least one.
  std::vector<std::int32_t> kept;
  double sum = 0;
  while (!candidates.empty() && (kept.empty() || sum < options.top_p * total)) {
    kept.push_back(candidates.take());
    sum += weight(kept.back());
  }
  place *= sum;
  for (const std::int32_t token : kept) {
    place -= weight(token);
    if (place < 0) return token;
  }
  return kept.back();
}

std::vector<std::int32_t> generate(Executor& executor, std::size_t program, std::span<const std::int32_t> prompt,
                                   std::int64_t max_new_tokens, std::span<const std::int32_t> end_ids,
                                   const SamplingOptions& options, std::span<const std::int64_t> cache_limits,
                                   const std::function<void(std::int32_t)>& on_token) {
  if (prompt.empty()) fail("the prompt has no tokens, and the model has no beginning-of-text token to start from");
  const StreamFeed feed(executor);
  const TensorView logits = executor.persistent(labels::logits);
  std::vector<std::int32_t> ids(prompt.begin(), prompt.end());
  MicroBatch batch;
  batch.input_ids = ids;
  Scalars scalars;
  for (std::int64_t made = 0; made < max_new_tokens; ++made) {
    const std::int64_t past = scalars.past;
    batch.positions.resize(batch.input_ids.size());
    std::iota(batch.positions.begin(), batch.positions.end(), static_cast<std::int32_t>(past));
    batch.document_starts = {0, static_cast<std::int32_t>(batch.input_ids.size())};
    feed.load(batch, scalars);
    executor.run(program, scalars);
    scalars.past += batch.tokens();
    const std::int32_t next = choose_token({logits.as<float>(), static_cast<std::size_t>(logits.elements())}, options,
                                           static_cast<std::uint64_t>(made));
    ids.push_back(next);
    if (on_token) on_token(next);
    if (std::find(end_ids.begin(), end_ids.end(), next) != end_ids.end()) break;
    if (std::find(cache_limits.begin(), cache_limits.end(), scalars.past) != cache_limits.end()) {
      batch.input_ids = ids;
      scalars.past = 0;
    } else {
      batch.input_ids = {next};
    }
  }
  return ids;
}

}  // namespace heddle
