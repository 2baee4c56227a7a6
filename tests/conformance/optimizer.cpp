#include "operation.h"
#include "ops/block_tree.h"

namespace heddle::conformance {
namespace {

constexpr double kDoubleUnit = 0x1p-53;

/// A piece of a tensor: elements [begin, begin + n) of `elements`.
struct Piece {
  std::int64_t elements, begin, n;
};

/// The largest aligned powers of two that make up the piece's blocks, each summed in f64: the bound is of f64 too.
Outputs sum_of_squares_reference(const Case& c) {
  const std::int64_t elements = c.attributes.integer("elements"), n = c.in[0].shape.elements();
  const std::int64_t block = elements < 4096 ? 16 : elements < 16384 ? 256 : 1024;
  std::int64_t at = c.attributes.integer("begin") / block;
  const std::int64_t first = at, end = at + (n + block - 1) / block;
  Outputs outputs(1);
  while (at < end) {
    std::int64_t length = 1;
    while (at % (2 * length) == 0 && at + 2 * length <= end) length *= 2;
    double total = 0.0;
    for (std::int64_t i = (at - first) * block; i < std::min(n, (at - first + length) * block); ++i)
      total += c.in[0].values[static_cast<std::size_t>(i)] * c.in[0].values[static_cast<std::size_t>(i)];
    outputs[0].push_back(Real(total, static_cast<double>(n) * kDoubleUnit * total));
    at += length;
  }
  while (outputs[0].size() < static_cast<std::size_t>(kMostRuns)) outputs[0].push_back(Real(-1.0));
  return outputs;
}

Case sum_of_squares_case(Piece piece) {
  return {.name = fmt::format("{} of {} from {}", piece.n, piece.elements, piece.begin),
          .in = {random(DType::f32, {piece.n}, 1)},
          .out = {given(DType::f64, {kMostRuns}, std::vector<double>(kMostRuns, -1.0))},
          .attributes = {{"elements", piece.elements}, {"begin", piece.begin}},
          .scalars = {}};
}

Outputs accumulate_gradient_reference(const Case& c) {
  return {elements(c.in[0].shape.elements(), [&](std::int64_t i) { return Real(initial(c, 0, i)) + c.in[0][i]; })};
}

Case accumulate_gradient_case(Precision p, std::int64_t n, Accumulate mode, bool first) {
  return {.name = fmt::format("n {} mode {} first {}", n, static_cast<int>(mode), first),
          .in = {random(DType::f32, {n}, 1)},
          .out = {gradient_output(p, {n}, mode, first, 2)},
          .attributes = {{"accumulate", static_cast<std::int64_t>(mode)}},
          .scalars = {.first_micro_batch = first}};
}

Outputs gradient_norm_reference(const Case& c) {
  double total = 0.0;
  for (const double x : c.in[0].values) total += x;
  const double inverse_loss_scale = c.scalars.inverse_loss_scale, limit = c.scalars.max_grad_norm;
  const double norm = std::sqrt(total) * inverse_loss_scale;
  const double clip = limit == 0.0 ? 1.0 : std::min(1.0, limit / (norm + 1e-6));
  return {{Real(norm, 1e-14 * norm)}, {Real(inverse_loss_scale * clip, 1e-14 * inverse_loss_scale)}};
}

/// Sums of tensors of one block each.
Case gradient_norm_case(const std::vector<double>& sums, float inverse_loss_scale, float limit) {
  std::vector<double> runs(sums.size() * kMostRuns, 0.0), elements(sums.size(), 16.0);
  for (std::size_t i = 0; i < sums.size(); ++i) runs[i * kMostRuns] = sums[i];
  return {.name = fmt::format("{} sums, inverse loss scale {}, limit {}", sums.size(), inverse_loss_scale, limit),
          .in = {given(DType::f64, {1, static_cast<std::int64_t>(sums.size()), kMostRuns}, runs)},
          .out = {output(DType::f64, {1}), output(DType::f32, {1})},
          .attributes = {{"elements", elements}},
          .scalars = {.inverse_loss_scale = inverse_loss_scale, .max_grad_norm = limit}};
}

Outputs adamw_reference(const Case& c) {
  const Operand &gradient = c.in[0], &parameter = c.out[0], &exp_avg = c.out[2], &exp_avg_sq = c.out[3];
  const Operand& master = c.out[1].present ? c.out[1] : parameter;
  const auto constant = [](double value) { return stored(DType::f32, value); };
  const double lr = c.scalars.learning_rate, beta1 = c.attributes.real("beta1"), beta2 = c.attributes.real("beta2");
  const double factor = c.in[1].present && c.in[1][0] != 0.0 ? c.in[1][0] : 1.0;
  Outputs outputs(4);
  for (std::int64_t i = 0; i < gradient.shape.elements(); ++i) {
    const Real g = factor * Real(gradient[i]);
    const Real m = exp_avg[i] + constant(1.0 - beta1) * (g - exp_avg[i]);
    const Real v = constant(beta2) * exp_avg_sq[i] + constant(1.0 - beta2) * g * g;
    const Real denominator = sqrt(v) / constant(std::sqrt(static_cast<double>(c.scalars.bias_correction2))) +
                             constant(c.attributes.real("epsilon"));
    const Real step = constant(lr / static_cast<double>(c.scalars.bias_correction1)) * m / denominator;
    const Real w = constant(1.0 - lr * c.attributes.real("weight_decay")) * master[i] - step;
    outputs[0].push_back(w);
    if (c.out[1].present) outputs[1].push_back(w);
    outputs[2].push_back(m);
    outputs[3].push_back(v);
  }
  return outputs;
}

Case adamw_case(Precision p, std::int64_t n, double factor, double weight_decay, DType gradient = DType::f32) {
  const Operand master = random(DType::f32, {n}, 1);
  Operand exp_avg_sq = random(DType::f32, {n}, 4, 0.1);
  for (double& v : exp_avg_sq.values) v = std::abs(v);
  return {.name = fmt::format("n {} factor {} weight decay {}", n, factor, weight_decay),
          .in = {random(gradient, {n}, 2), given(DType::f32, {1}, {factor})},
          .out = {given(p.activation, {n}, master.values), p.activation == DType::f32 ? absent() : master,
                  random(DType::f32, {n}, 3, 0.1), exp_avg_sq},
          .attributes = {{"beta1", 0.9}, {"beta2", 0.95}, {"epsilon", 1e-8}, {"weight_decay", weight_decay}},
          .scalars = {.learning_rate = 3e-4f, .bias_correction1 = 0.271f, .bias_correction2 = 0.142625f}};
}

}  // namespace

std::vector<Operation> optimizer_operations() {
  return {
      {.name = "accumulate_gradient",
       .cases = [](Precision p) -> std::vector<Case> {
         return {accumulate_gradient_case(p, 1, Accumulate::add, true),
                 accumulate_gradient_case(p, 1001, Accumulate::add_after_first, true),
                 accumulate_gradient_case(p, 16384 * 2 + 3, Accumulate::add_after_first, false)};
       },
       .reference = accumulate_gradient_reference,
       .precisions = {DType::f32},
       .large = [](Precision p) { return accumulate_gradient_case(p, std::int64_t{1} << 24, Accumulate::add, false); }},
      {.name = "sum_of_squares",
       .cases = [](Precision) -> std::vector<Case> {
         return {sum_of_squares_case({1, 0, 1}),
                 sum_of_squares_case({1001, 0, 1001}),
                 sum_of_squares_case({16384 * 3 + 5, 0, 16384 * 3 + 5}),
                 sum_of_squares_case({1001, 336, 336}),
                 sum_of_squares_case({16384 * 3 + 5, 17408, 31749}),
                 sum_of_squares_case({40, 40, 0})};
       },
       .reference = sum_of_squares_reference,
       .precisions = {DType::f32},
       .large =
           [](Precision) {
             return sum_of_squares_case({1 << 24, 0, 1 << 24});
           }},
      {.name = "gradient_norm",
       .cases = [](Precision) -> std::vector<Case> {
         return {gradient_norm_case({4.0}, 1.0f, 0.0f), gradient_norm_case({1.0, 2.5, 1e3}, 1.0f, 1.0f),
                 gradient_norm_case({1e-3, 2e-4}, 0.5f, 1.0f), gradient_norm_case({1e9, 3e8, 1.0}, 0x1p-12f, 0.5f)};
       },
       .reference = gradient_norm_reference,
       .precisions = {DType::f32}},
      {.name = "adamw",
       .cases = [](Precision p) -> std::vector<Case> {
         return {adamw_case(p, 1, 1.0, 0.1), adamw_case(p, 1001, 0.37, 0.0), adamw_case(p, 16384 * 2 + 3, 0.0, 0.01),
                 adamw_case(p, 1001, 0.37, 0.1, p.activation)};
       },
       .reference = adamw_reference,
       .large = [](Precision p) { return adamw_case(p, std::int64_t{1} << 24, 0.37, 0.1); }},
  };
}

}  // namespace heddle::conformance
