#include "train/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/random.h"
#include "train/stream.h"

namespace heddle {
namespace {

/// Indices of the tokens that stay, most likely first.
std::vector<std::int32_t> candidates(std::span<const float> logits, const SamplingOptions& options) {
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto more_likely = [&](std::int32_t a, std::int32_t b) {
    const float x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  };
  const auto keep =
      options.top_k > 0 ? std::min<std::size_t>(static_cast<std::size_t>(options.top_k), order.size()) : order.size();
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(keep), order.end(), more_likely);
  order.resize(keep);
  return order;
}

}  // namespace

std::int32_t choose_token(std::span<const float> logits, const SamplingOptions& options, std::uint64_t draw) {
  if (!options.do_sample) {
    return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
  auto order = candidates(logits, options);
  const double greatest = static_cast<double>(logits[static_cast<std::size_t>(order[0])]);
  std::vector<double> weights(order.size());
  double total = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    weights[i] =
        std::exp((static_cast<double>(logits[static_cast<std::size_t>(order[i])]) - greatest) / options.temperature);
    total += weights[i];
  }
  // top_p keeps the fewest most likely tokens whose probabilities reach it; at least one.
  double kept = 0;
  std::size_t count = 0;
  while (count < order.size() && (count == 0 || kept < options.top_p * total)) kept += weights[count++];
  double place = Random(options.seed, draw).uniform() * kept;
  for (std::size_t i = 0; i < count; ++i) {
    place -= weights[i];
    if (place < 0) return order[i];
  }
  return order[count - 1];
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
