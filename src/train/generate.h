#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "train/executor.h"

namespace heddle {

/// How the next token is chosen; the names and meanings of Hugging Face's generate().
struct SamplingOptions {
  bool do_sample = false;  ///< false: the token with the greatest logit
  double temperature = 1.0;
  std::int64_t top_k = 0;  ///< 0: all
  double top_p = 1.0;
  std::uint64_t seed = 0;
};

/// Chooses a token from logits [V]. `draw` numbers the draws of one text. Throws Error where a logit is NaN or
/// infinite, or all are -infinity.
std::int32_t choose_token(std::span<const float> logits, const SamplingOptions& options, std::uint64_t draw);

/// Ids of the prompt and of up to `max_new_tokens` more; stops after any of `end_ids`. `program` is the generation
/// program, whose cache must hold the prompt and the new tokens; it is made anew when the text grows beyond one of
/// `cache_limits`. `on_token` sees each new id.
std::vector<std::int32_t> generate(Executor& executor, std::size_t program, std::span<const std::int32_t> prompt,
                                   std::int64_t max_new_tokens, std::span<const std::int32_t> end_ids,
                                   const SamplingOptions& options, std::span<const std::int64_t> cache_limits = {},
                                   const std::function<void(std::int32_t)>& on_token = {});

}  // namespace heddle
