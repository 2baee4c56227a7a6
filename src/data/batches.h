#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heddle {

/// One micro-batch: rows end to end in one stream of T positions. Label t is the token to predict at position t, -100
/// where none. Documents are document_starts[d] .. document_starts[d + 1]; positions restart in each.
struct MicroBatch {
  std::vector<std::int32_t> input_ids, labels, positions;  // [T]
  std::vector<std::int32_t> document_starts;               // [documents + 1]
  std::vector<std::int64_t> rows;                          // of the data set
  std::int64_t supervised_tokens = 0;

  std::int64_t tokens() const { return static_cast<std::int64_t>(input_ids.size()); }
};

/// All micro-batches of one optimizer step, in order.
struct StepBatch {
  std::vector<MicroBatch> micro_batches;
  double epoch = 0;  ///< epochs done after this step, as Hugging Face logs it
  std::int64_t rows = 0, tokens = 0, supervised_tokens = 0;
};

}  // namespace heddle
