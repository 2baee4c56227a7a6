// Losses of pairs of documents, chosen (2p) and rejected (2p + 1), of what their labels are worth:
//   s = log_probs - reference    u = beta (a_chosen s_chosen - a_rejected s_rejected)
// with a = 1, or for ipo and sigmoid_norm 1 / the document's supervised tokens; e is label_smoothing:
//   sigmoid       -(1-e) log σ(u) - e log σ(-u)                 (Rafailov et al. 2023, arXiv:2305.18290, eq. 7; with e
//                                                               the conservative form of their label noise)
//   robust        (-(1-e) log σ(u) + e log σ(-u)) / (1 - 2e)    (Chowdhury et al. 2024, arXiv:2403.00409)
//   hinge         max(0, 1 - u)                                 (SLiC: Zhao et al. 2023, arXiv:2305.10425)
//   ipo           (u / beta - 1 / (2 beta))^2                   (Azar et al. 2023, arXiv:2310.12036, eq. 17)
//   sigmoid_norm  -log σ(u)
// All in double. loss, sums and dlog_probs are overwritten; a document without its other half has zero.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/logit_rows.h"

namespace heddle::cpu {
namespace {

double sigmoid(double x) { return x >= 0.0 ? 1.0 / (1.0 + std::exp(-x)) : std::exp(x) / (1.0 + std::exp(x)); }
double log_sigmoid(double x) { return std::min(x, 0.0) - std::log1p(std::exp(-std::abs(x))); }

struct PairLoss {
  double loss, slope;  ///< and its derivative by u
};

class PreferenceLoss {
 public:
  explicit PreferenceLoss(const Attributes& attributes)
      : type_(static_cast<PreferenceLossType>(attributes.integer("loss_type"))),
        beta_(attributes.real("beta")),
        smoothing_(attributes.real("label_smoothing")) {}

  double beta() const { return beta_; }
  bool is_per_token() const { return type_ == PreferenceLossType::ipo || type_ == PreferenceLossType::sigmoid_norm; }
  PairLoss of(double u) const {
    const double e = smoothing_;
    switch (type_) {
      case PreferenceLossType::sigmoid:
        return {-(1.0 - e) * log_sigmoid(u) - e * log_sigmoid(-u), -(1.0 - e) * sigmoid(-u) + e * sigmoid(u)};
      case PreferenceLossType::robust: {
        const double inverse = 1.0 / (1.0 - 2.0 * e);
        return {inverse * (-(1.0 - e) * log_sigmoid(u) + e * log_sigmoid(-u)),
                inverse * (-(1.0 - e) * sigmoid(-u) - e * sigmoid(u))};
      }
      case PreferenceLossType::hinge: return {std::max(0.0, 1.0 - u), u < 1.0 ? -1.0 : 0.0};
      case PreferenceLossType::ipo: {
        const double gap = (u - 0.5) / beta_;
        return {gap * gap, 2.0 * gap / beta_};
      }
      case PreferenceLossType::sigmoid_norm: return {-log_sigmoid(u), -sigmoid(-u)};
    }
    fail("preference_loss: loss_type {} is unknown", static_cast<std::int64_t>(type_));
  }

 private:
  PreferenceLossType type_;
  double beta_, smoothing_;
};

/// dlog_probs: null, or where the derivatives go.
void compute(const KernelCall& call, double* dlog_probs) {
  const PreferenceLoss loss(call.attributes);
  const auto *log_probs = call.in[0].as<double>(), *reference = call.in[1].as<double>();
  const auto *labels = call.in[2].as<std::int32_t>(), *starts = call.in[3].as<std::int32_t>();
  const auto weight = [&](std::int64_t document) {
    if (!loss.is_per_token()) return 1.0;
    const auto targets = std::count_if(labels + starts[document], labels + starts[document + 1],
                                       [](std::int32_t label) { return label != kIgnoredLabel; });
    return 1.0 / static_cast<double>(std::max<std::ptrdiff_t>(1, targets));
  };
  double total = 0.0;
  auto* sums = call.out[1].as<double>();
  std::fill_n(sums, kPreferenceSums, 0.0);
  const auto add = [&](PreferenceSum sum, double value) { sums[static_cast<std::size_t>(sum)] += value; };
  for (std::int64_t chosen = 0; chosen + 1 < call.scalars.documents; chosen += 2) {
    const std::int64_t rejected = chosen + 1;
    const double of_chosen = weight(chosen), of_rejected = weight(rejected);
    const double chosen_reward = loss.beta() * (log_probs[chosen] - reference[chosen]);
    const double rejected_reward = loss.beta() * (log_probs[rejected] - reference[rejected]);
    const PairLoss pair = loss.of(of_chosen * chosen_reward - of_rejected * rejected_reward);
    total += pair.loss;
    add(PreferenceSum::chosen_reward, chosen_reward);
    add(PreferenceSum::rejected_reward, rejected_reward);
    add(PreferenceSum::accuracy, chosen_reward > rejected_reward ? 1.0 : 0.0);
    add(PreferenceSum::chosen_log_prob, log_probs[chosen]);
    add(PreferenceSum::rejected_log_prob, log_probs[rejected]);
    if (dlog_probs == nullptr) continue;
    const double slope = static_cast<double>(call.scalars.gradient_scale) * pair.slope * loss.beta();
    dlog_probs[chosen] = slope * of_chosen;
    dlog_probs[rejected] = -slope * of_rejected;
  }
  *call.out[0].as<double>() = total;
}

}  // namespace

void preference_loss(const KernelCall& call) { compute(call, nullptr); }

void preference_loss_gradient(const KernelCall& call) {
  auto* dlog_probs = call.out[2].as<double>();
  std::fill_n(dlog_probs, call.out[2].elements(), 0.0);
  compute(call, dlog_probs);
}

}  // namespace heddle::cpu
