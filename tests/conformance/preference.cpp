#include "logit_row.h"
#include "operation.h"

namespace heddle::conformance {
namespace {

std::int64_t document_of(const Case& c, std::int64_t token) {
  const Operand& starts = c.in[3];
  std::int64_t document = 0;
  while (starts[document + 1] <= static_cast<double>(token)) ++document;
  return document;
}

std::int64_t vocabulary_of(const Case& c) { return c.in[1].shape.elements() / c.in[0].shape[1]; }

/// A document is worth the sum of log p(label) over its supervised tokens.
std::vector<Real> log_probs_of(const Case& c) {
  const Operand& labels = c.in[2];
  std::vector<Real> worth(static_cast<std::size_t>(c.in[3].shape[0] - 1), Real());
  for (std::int64_t t = 0; t < c.in[0].shape[0]; ++t) {
    if (labels[t] == kIgnored) continue;
    Real& of_document = worth[static_cast<std::size_t>(document_of(c, t))];
    of_document = of_document - LogitRow(c, t).loss(static_cast<std::int64_t>(labels[t]));
  }
  return worth;
}

Outputs log_probs_reference(const Case& c) { return {log_probs_of(c), {}}; }

Outputs log_probs_backward_reference(const Case& c) {
  const Operand &x = c.in[0], &labels = c.in[2], &dlog_probs = c.in[4];
  const std::int64_t tokens = x.shape[0], hidden = x.shape[1], vocabulary = vocabulary_of(c);
  const bool is_transposed = c.attributes.integer("transposed") != 0;
  std::vector<std::vector<Real>> d;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const LogitRow row(c, t);
    const Real scale = stored(DType::f32, -dlog_probs[document_of(c, t)]);
    d.push_back(elements(vocabulary, [&](std::int64_t v) {
      return labels[t] == kIgnored ? Real() : scale * row.gradient(v, static_cast<std::int64_t>(labels[t]));
    }));
  }
  const auto at = [&](std::int64_t t, std::int64_t v) {
    return taken(c, d[static_cast<std::size_t>(t)][static_cast<std::size_t>(v)]);
  };
  const auto dx = elements(tokens * hidden, [&](std::int64_t i) {
    const std::int64_t t = i / hidden, h = i % hidden;
    return sum(vocabulary, [&](std::int64_t v) { return at(t, v) * weight_at(c, v, h); });
  });
  const auto dweight = elements(c.out[1].present ? vocabulary * hidden : 0, [&](std::int64_t i) {
    const std::int64_t v = is_transposed ? i % vocabulary : i / hidden;
    const std::int64_t h = is_transposed ? i / vocabulary : i % hidden;
    return initial(c, 1, i) + sum(tokens, [&](std::int64_t t) { return at(t, v) * x[t * hidden + h]; });
  });
  const auto exact = [&](std::int64_t t, std::int64_t v) {
    return d[static_cast<std::size_t>(t)][static_cast<std::size_t>(v)];
  };
  const Outputs adapter = adapter_gradients(c, at, exact);
  return {dx, dweight, {}, adapter[0], adapter[1], adapter[2], adapter[3]};
}

double log_probs_objective(const Case& c) { return inner_product(c.in[4], log_probs_of(c)); }

struct Extents {
  std::int64_t tokens, hidden, vocabulary, chunk;
  std::vector<double> starts;  ///< documents, the last of which ends at `tokens`
};

/// document_starts has room for one document more than there is.
Case log_probs_case(Precision p, const Extents& e, bool transposed, double softcap, double logit_scale) {
  const auto documents = static_cast<std::int64_t>(e.starts.size());
  std::vector<double> starts = e.starts;
  starts.push_back(static_cast<double>(e.tokens));
  starts.push_back(static_cast<double>(e.tokens));
  Operand labels = random_ids({e.tokens}, e.vocabulary, 3);
  for (std::size_t t = 1; t < labels.values.size(); t += 3) labels.values[t] = kIgnored;
  const Shape weight = transposed ? Shape{e.hidden, e.vocabulary} : Shape{e.vocabulary, e.hidden};
  return {.name = fmt::format("T {} H {} V {} chunk {} documents {} transposed {} softcap {} logit_scale {}", e.tokens,
                              e.hidden, e.vocabulary, e.chunk, documents, transposed, softcap, logit_scale),
          .in = {random(p.activation, {e.tokens, e.hidden}, 1), random(p.activation, weight, 2, 0.3), labels,
                 given(DType::i32, {documents + 2}, starts), absent(), absent(), absent(), absent(), absent()},
          .out = {output(DType::f64, {documents + 1}), workspace({e.chunk, e.vocabulary})},
          .attributes = {{"chunk", e.chunk},
                         {"transposed", std::int64_t{transposed}},
                         {"softcap", softcap},
                         {"logit_scale", logit_scale}},
          .scalars = {.tokens = e.tokens, .documents = documents}};
}

Case backward_case(Precision p, const Extents& e, bool transposed, double softcap, double logit_scale, Accumulate mode,
                   bool first) {
  Case c = log_probs_case(p, e, transposed, softcap, logit_scale);
  c.name += fmt::format(" accumulate {} first {}", static_cast<int>(mode), first);
  c.attributes.set("accumulate", static_cast<std::int64_t>(mode));
  c.scalars.first_micro_batch = first;
  c.in.insert(c.in.begin() + 4, random(DType::f64, c.out[0].shape, 4, 0.1));
  c.out = {output(p.activation, {e.tokens, e.hidden}),
           gradient_output(p, c.in[1].shape, mode, first, 5),
           workspace({e.chunk, e.vocabulary}),
           absent(),
           absent(),
           absent(),
           absent()};
  return c;
}

constexpr AdapterCase kForward{.workspace_output = 1}, kBackward{.workspace_output = 2, .dweight = 1};

Case with_quantized(Case c) {
  c.name += " weight nf4";
  c.in[1] = random_quantized(DType::nf4, c.in[1].shape, 2, 0.3);
  if (c.out.size() > 2) c.out[1] = absent();
  return c;
}

// Pairs.

Real log_sigmoid(Real u) { return -log(1.0 + exp(-u)); }

/// The loss of a pair, from its scores s and its supervised tokens, as TRL's DPOTrainer writes it.
Real pair_loss(const Case& c, Real chosen, Real rejected, double chosen_tokens, double rejected_tokens) {
  const double beta = c.attributes.real("beta"), e = c.attributes.real("label_smoothing");
  const Real delta = chosen - rejected, mean_delta = chosen / chosen_tokens - rejected / rejected_tokens;
  switch (static_cast<PreferenceLossType>(c.attributes.integer("loss_type"))) {
    case PreferenceLossType::sigmoid: return -(1.0 - e) * log_sigmoid(beta * delta) - e * log_sigmoid(-beta * delta);
    case PreferenceLossType::hinge: return (beta * delta).value < 1.0 ? 1.0 - beta * delta : Real();
    case PreferenceLossType::ipo: return (mean_delta - 1.0 / (2.0 * beta)) * (mean_delta - 1.0 / (2.0 * beta));
    case PreferenceLossType::robust:
      return (-(1.0 - e) * log_sigmoid(beta * delta) + e * log_sigmoid(-beta * delta)) / (1.0 - 2.0 * e);
    case PreferenceLossType::sigmoid_norm: return -log_sigmoid(beta * mean_delta);
  }
  return {};
}

/// Loss and sums over the pairs; with `dlog_probs` the derivatives, by central differences in double.
Outputs pairs_of(const Case& c, bool with_gradient) {
  const Operand &log_probs = c.in[0], &reference = c.in[1], &labels = c.in[2], &starts = c.in[3];
  const auto tokens_of = [&](std::int64_t document) {
    double count = 0.0;
    for (auto t = static_cast<std::int64_t>(starts[document]); t < static_cast<std::int64_t>(starts[document + 1]); ++t)
      count += labels[t] == kIgnored ? 0.0 : 1.0;
    return std::max(1.0, count);
  };
  const double beta = c.attributes.real("beta");
  Real loss;
  std::vector<Real> sums(kPreferenceSums), gradient(log_probs.values.size());
  const auto add = [&](PreferenceSum sum, Real value) {
    sums[static_cast<std::size_t>(sum)] = sums[static_cast<std::size_t>(sum)] + value;
  };
  for (std::int64_t i = 0; i + 1 < c.scalars.documents; i += 2) {
    const Real chosen = Real(log_probs[i]) - reference[i], rejected = Real(log_probs[i + 1]) - reference[i + 1];
    loss = loss + pair_loss(c, chosen, rejected, tokens_of(i), tokens_of(i + 1));
    add(PreferenceSum::chosen_reward, beta * chosen);
    add(PreferenceSum::rejected_reward, beta * rejected);
    add(PreferenceSum::accuracy, chosen.value > rejected.value ? 1.0 : 0.0);
    add(PreferenceSum::chosen_log_prob, log_probs[i]);
    add(PreferenceSum::rejected_log_prob, log_probs[i + 1]);
    constexpr double kStep = 1e-5;
    for (const bool is_chosen : {true, false}) {
      const auto moved = [&](double step) {
        return pair_loss(c, is_chosen ? chosen + step : chosen, is_chosen ? rejected : rejected + step, tokens_of(i),
                         tokens_of(i + 1))
            .value;
      };
      // The third derivatives are of order 1: the quotient is off by 1e-10, and by rounding as much.
      const double slope = static_cast<double>(c.scalars.gradient_scale) * (moved(kStep) - moved(-kStep)) / (2 * kStep);
      gradient[static_cast<std::size_t>(is_chosen ? i : i + 1)] = Real(slope, 1e-8 + 1e-6 * std::abs(slope));
    }
  }
  Outputs out = {{loss}, sums};
  if (with_gradient) out.push_back(gradient);
  return out;
}

Outputs loss_reference(const Case& c) { return pairs_of(c, false); }
Outputs loss_gradient_reference(const Case& c) { return pairs_of(c, true); }
double loss_objective(const Case& c) {
  return static_cast<double>(c.scalars.gradient_scale) * pairs_of(c, false)[0][0].value;
}

/// `pairs` pairs, and a document without its other half where has_odd.
Case loss_case(PreferenceLossType type, std::int64_t pairs, double beta, double label_smoothing, bool has_odd,
               bool with_gradient) {
  const std::int64_t documents = 2 * pairs + (has_odd ? 1 : 0), room = documents + 2;
  std::vector<double> starts = {0};
  for (std::int64_t i = 0; i < room; ++i) starts.push_back(starts.back() + (i < documents ? 3.0 + i % 4 : 0.0));
  const auto tokens = static_cast<std::int64_t>(starts.back());
  Operand labels = random_ids({tokens}, 50, 3);
  for (std::size_t t = 0; t < labels.values.size(); t += 3) labels.values[t] = kIgnored;
  Case c{.name = fmt::format("loss_type {} pairs {} beta {} label_smoothing {} odd {}", static_cast<int>(type), pairs,
                             beta, label_smoothing, has_odd),
         .in = {random(DType::f64, {room}, 1, 10.0), random(DType::f64, {room}, 2, 10.0), labels,
                given(DType::i32, {room + 1}, starts)},
         .out = {output(DType::f64, {1}), output(DType::f64, {static_cast<std::int64_t>(kPreferenceSums)})},
         .attributes = {{"loss_type", static_cast<std::int64_t>(type)},
                        {"beta", beta},
                        {"label_smoothing", label_smoothing}},
         .scalars = {.tokens = tokens, .documents = documents, .gradient_scale = 0.25f}};
  if (with_gradient) c.out.push_back(output(DType::f64, {room}));
  return c;
}

std::vector<Case> loss_cases(bool with_gradient) {
  using Type = PreferenceLossType;
  return {loss_case(Type::sigmoid, 1, 0.1, 0.0, false, with_gradient),
          loss_case(Type::sigmoid, 5, 0.1, 0.0, true, with_gradient),
          loss_case(Type::sigmoid, 0, 0.1, 0.0, true, with_gradient),
          loss_case(Type::sigmoid, 7, 0.5, 0.2, false, with_gradient),
          loss_case(Type::robust, 7, 0.3, 0.1, false, with_gradient),
          loss_case(Type::hinge, 9, 0.07, 0.0, true, with_gradient),
          loss_case(Type::ipo, 6, 0.1, 0.0, false, with_gradient),
          loss_case(Type::sigmoid_norm, 6, 2.0, 0.0, true, with_gradient)};
}

const Extents kLarge{.tokens = 512, .hidden = 1024, .vocabulary = 16384, .chunk = 256, .starts = {0, 200, 300}};
double products(double count) {
  return count * 2.0 * static_cast<double>(kLarge.tokens * kLarge.hidden) * static_cast<double>(kLarge.vocabulary);
}

}  // namespace

std::vector<Operation> preference_operations() {
  return {
      {.name = "linear_log_probs",
       .cases = [](Precision p) -> std::vector<Case> {
         return {log_probs_case(p, {1, 1, 2, 1, {0}}, false, 0.0, 1.0),
                 log_probs_case(p, {13, 20, 37, 4, {0, 3, 9}}, false, 0.0, 1.0),
                 log_probs_case(p, {20, 33, 101, 64, {0, 1, 2, 19}}, true, 2.0, 1.0),
                 log_probs_case(p, {9, 16, 64, 8, {0, 5}}, false, 0.0, 0.25),
                 kForward.with_branch(p, log_probs_case(p, {13, 20, 37, 4, {0, 3, 9}}, false, 2.0, 0.5)),
                 kForward.with_magnitudes(p, log_probs_case(p, {13, 20, 37, 4, {0, 3, 9}}, false, 2.0, 0.5)),
                 kForward.with_rows(p, log_probs_case(p, {13, 20, 37, 4, {0, 3, 9}}, false, 0.0, 1.0)),
                 with_quantized(log_probs_case(p, {13, 64, 37, 4, {0, 6}}, false, 0.0, 1.0))};
       },
       .reference = log_probs_reference,
       .large = [](Precision p) { return log_probs_case(p, kLarge, false, 0.0, 1.0); },
       .flops = [](const Case&) { return products(1.0); }},
      {.name = "linear_log_probs_backward",
       .cases = [](Precision p) -> std::vector<Case> {
         return {
             backward_case(p, {1, 1, 2, 1, {0}}, false, 0.0, 1.0, Accumulate::overwrite, true),
             backward_case(p, {13, 20, 37, 4, {0, 3, 9}}, false, 0.0, 1.0, Accumulate::add, false),
             backward_case(p, {20, 33, 101, 64, {0, 1, 2, 19}}, true, 2.0, 1.0, Accumulate::add_after_first, true),
             backward_case(p, {9, 16, 64, 8, {0, 5}}, false, 0.0, 0.25, Accumulate::add_after_first, false),
             kBackward.with_branch(
                 p, backward_case(p, {13, 20, 37, 4, {0, 3, 9}}, false, 2.0, 0.5, Accumulate::add, false)),
             kBackward.with_magnitudes(
                 p, backward_case(p, {13, 20, 37, 4, {0, 3, 9}}, false, 2.0, 0.5, Accumulate::add, false)),
             kBackward.with_rows(
                 p, backward_case(p, {13, 20, 37, 4, {0, 3}}, false, 0.0, 1.0, Accumulate::overwrite, true)),
             with_quantized(backward_case(p, {13, 64, 37, 4, {0, 6}}, false, 0.0, 1.0, Accumulate::overwrite, true))};
       },
       .reference = log_probs_backward_reference,
       .objective = log_probs_objective,
       .derivatives = {{.output = 0, .input = 0},
                       {.output = 1, .input = 1},
                       {.output = 3, .input = 5},
                       {.output = 4, .input = 6},
                       {.output = 5, .input = 7},
                       {.output = 6, .input = 8}},
       .large = [](Precision p) { return backward_case(p, kLarge, false, 0.0, 1.0, Accumulate::overwrite, true); },
       .flops = [](const Case&) { return products(3.0); }},
      {.name = "preference_loss",
       .cases = [](Precision) { return loss_cases(false); },
       .reference = loss_reference,
       .precisions = {DType::f32},
       .large = [](Precision) { return loss_case(PreferenceLossType::sigmoid, 512, 0.1, 0.0, false, false); }},
      {.name = "preference_loss_gradient",
       .cases = [](Precision) { return loss_cases(true); },
       .reference = loss_gradient_reference,
       .precisions = {DType::f32},
       .objective = loss_objective,
       .derivatives = {{.output = 2, .input = 0}},
       .large = [](Precision) { return loss_case(PreferenceLossType::sigmoid, 512, 0.1, 0.0, false, true); }},
  };
}

}  // namespace heddle::conformance
