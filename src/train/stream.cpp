#include "train/stream.h"

#include <cstring>

#include "base/error.h"

namespace heddle {
namespace {

void copy(const std::vector<std::int32_t>& from, const TensorView& to) {
  HEDDLE_CHECK(static_cast<std::int64_t>(from.size()) <= to.elements());
  std::memcpy(to.data, from.data(), from.size() * sizeof(std::int32_t));
}

}  // namespace

MicroBatch idle_micro_batch() {
  return {.input_ids = {0},
          .labels = {-100},
          .positions = {0},
          .document_starts = {0, 1},
          .rows = {},
          .supervised_tokens = 0};
}

StreamFeed::StreamFeed(const Executor& executor, const ReferenceLogProbs* reference)
    : input_ids_(executor.persistent(labels::input_ids)),
      labels_(executor.has_persistent(labels::labels) ? executor.persistent(labels::labels) : TensorView{}),
      positions_(executor.persistent(labels::positions)),
      document_starts_(executor.persistent(labels::document_starts)),
      reference_(reference) {
  if (reference != nullptr) reference_log_probs_ = executor.persistent(labels::reference_log_probs);
}

void StreamFeed::load(const MicroBatch& batch, Scalars& scalars) const {
  copy(batch.input_ids, input_ids_);
  copy(batch.positions, positions_);
  copy(batch.document_starts, document_starts_);
  if (labels_.present()) copy(batch.labels, labels_);
  if (reference_ != nullptr) reference_->load(batch, reference_log_probs_);
  scalars.tokens = batch.tokens();
  scalars.documents = static_cast<std::int64_t>(batch.document_starts.size()) - 1;
}

}  // namespace heddle
