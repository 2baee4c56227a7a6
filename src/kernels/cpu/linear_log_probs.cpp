// What the labels of each document are worth to the model, and the gradients of that, a chunk of tokens at a time:
//   z = c tanh(s x W^T / c)    log_probs[k] = sum over supervised tokens t of document k of z_label - log sum_j exp z_j
//   d[t] = dlog_probs[document of t] (onehot - softmax(z)) (1 - (z/c)^2) s    dx = d W    dW (+)= d^T x
// with s logit_scale, c softcap (none: z = s x W^T); x [T,H], W [V,H] (transposed: [H,V]). Logits are f32 in the
// workspace [chunk,V]; the backward makes them again. log_probs and dx are overwritten, dW as the call says; an
// adapter's operands are as in linear_cross_entropy. T*H*V multiply-adds, and three times that backward.
#include <algorithm>

#include "base/error.h"
#include "base/threads.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/logit_rows.h"

namespace heddle::cpu {
namespace {

/// The documents of a stream, asked for tokens in ascending order.
class Documents {
 public:
  explicit Documents(const KernelCall& call) : starts_(call.in[3].as<std::int32_t>()), count_(call.scalars.documents) {
    HEDDLE_CHECK(count_ > 0 && count_ < call.in[3].elements());
  }
  std::int64_t of_token(std::int64_t token) {
    while (current_ + 1 < count_ && token >= starts_[current_ + 1]) ++current_;
    return current_;
  }

 private:
  const std::int32_t* starts_;
  std::int64_t count_, current_ = 0;
};

/// `adapter`: the first of the inputs that are an adapter's.
Head head_of(const KernelCall& call, const TensorView& workspace, std::size_t adapter) {
  Head head(call, workspace);
  head.set_adapter(call, adapter);
  head.row.smoothing = head.row.z_loss = 0.0;
  return head;
}

}  // namespace

void linear_log_probs(const KernelCall& call) {
  const Head head = head_of(call, call.out[1], 4);
  auto* log_probs = call.out[0].as<double>();
  std::fill_n(log_probs, call.out[0].elements(), 0.0);
  Documents documents(call);
  for (std::int64_t begin = 0; begin < head.tokens; begin += head.chunk) {
    const std::int64_t count = std::min(head.chunk, head.tokens - begin);
    if (!any_supervised(head, begin, count)) continue;
    make_logits(head, begin, count);
    auto* losses = reinterpret_cast<double*>(head.scratch.shared);  // free between products
    parallel_for(count, [&](std::int64_t i, int) {
      LogitRow row = head.row;
      row.values = head.logits + i * head.vocabulary;
      row.label = head.labels[begin + i];
      losses[i] = row.label == kIgnoredLabel ? 0.0 : cross_entropy_of(row);
    });
    for (std::int64_t i = 0; i < count; ++i) log_probs[documents.of_token(begin + i)] -= losses[i];
  }
}

void linear_log_probs_backward(const KernelCall& call) {
  Head head = head_of(call, call.out[2], 5);
  head.row.with_gradient = true;
  HeadGradients gradients(call, call.out[0], call.out[1], 3);
  const auto* dlog_probs = call.in[4].as<double>();
  Documents documents(call);
  for (std::int64_t begin = 0; begin < head.tokens; begin += head.chunk) {
    const std::int64_t count = std::min(head.chunk, head.tokens - begin);
    if (!any_supervised(head, begin, count)) {
      gradients.skip(begin, count);
      continue;
    }
    make_logits(head, begin, count);
    auto* scales = reinterpret_cast<float*>(head.scratch.shared);  // free between products
    for (std::int64_t i = 0; i < count; ++i) {
      scales[i] = static_cast<float>(-dlog_probs[documents.of_token(begin + i)]);
    }
    parallel_for(count, [&](std::int64_t i, int) {
      LogitRow row = head.row;
      row.values = head.logits + i * head.vocabulary;
      row.label = head.labels[begin + i];
      row.gradient_scale = scales[i];
      if (row.label == kIgnoredLabel) {
        std::fill_n(row.values, head.vocabulary, 0.0f);
      } else {
        cross_entropy_of(row);
      }
    });
    gradients.write(head, begin, count);
  }
  gradients.finish();
}

}  // namespace heddle::cpu
