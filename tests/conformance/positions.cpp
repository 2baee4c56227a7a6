#include "operation.h"

namespace heddle::conformance {
namespace {

/// In double up to the last rounding.
Outputs rope_table_reference(const Case& c) {
  const Operand &positions = c.in[0], &document_starts = c.in[1];
  const std::int64_t half = c.out[0].shape[1];
  const double dimensions = 2.0 * static_cast<double>(half);
  const double theta = c.attributes.real("dynamic_theta"), factor = c.attributes.real("dynamic_factor");
  const auto original = static_cast<double>(c.attributes.integer("original_positions"));
  const auto angle = [&](std::int64_t i) {
    const std::int64_t t = i / half, j = i % half;
    double inv_freq = c.attributes.list("inv_freq")[static_cast<std::size_t>(j)];
    // transformers' dynamic NTK scaling and longrope. A document of n ids takes n - 1 positions of the stream.
    std::int64_t document = 0;
    while (document_starts[document + 1] <= static_cast<double>(t)) ++document;
    const double ids = document_starts[document + 1] - document_starts[document] + 1.0;
    if (const auto of_long = c.attributes.list("long_inv_freq"); !of_long.empty() && ids > original) {
      inv_freq = of_long[static_cast<std::size_t>(j)];
    } else if (theta > 0.0 && ids > original) {
      const double base = theta * std::pow(factor * ids / original - (factor - 1.0), dimensions / (dimensions - 2.0));
      inv_freq = std::pow(base, -2.0 * static_cast<double>(j) / dimensions);
    }
    return positions[t] * inv_freq;
  };
  const double attention_factor = c.attributes.real("attention_factor", 1.0);
  constexpr double kDoubleError = 1e-12;
  const std::int64_t n = c.out[0].shape.elements();
  return {elements(n, [&](std::int64_t i) { return Real(attention_factor * std::cos(angle(i)), kDoubleError); }),
          elements(n, [&](std::int64_t i) { return Real(attention_factor * std::sin(angle(i)), kDoubleError); })};
}

std::vector<double> inverse_frequencies(std::int64_t half) {
  std::vector<double> list;
  for (std::int64_t j = 0; j < half; ++j) {
    list.push_back(std::pow(10000.0, -static_cast<double>(j) / static_cast<double>(half)));
  }
  return list;
}

/// Documents that start at `starts`, the last of which is T; positions count within each.
enum class ByLength { no, dynamic, longrope };

Case rope_table_case(Precision p, std::vector<double> starts, std::int64_t half, double attention_factor,
                     ByLength by_length) {
  const auto tokens = static_cast<std::int64_t>(starts.back());
  std::vector<double> positions;
  for (std::size_t d = 0; d + 1 < starts.size(); ++d) {
    for (double t = starts[d]; t < starts[d + 1]; t += 1.0) positions.push_back(t - starts[d]);
  }
  const auto documents = static_cast<std::int64_t>(starts.size()) - 1;
  Case c{.name = fmt::format("T {} R/2 {} by length {}", tokens, half, static_cast<int>(by_length)),
         .in = {given(DType::i32, {tokens}, positions), given(DType::i32, {documents + 1}, starts)},
         .out = {output(p.single, {tokens, half}), output(p.single, {tokens, half})},
         .attributes = {{"inv_freq", inverse_frequencies(half)}, {"attention_factor", attention_factor}},
         .scalars = {.tokens = tokens, .documents = documents}};
  if (by_length != ByLength::no) c.attributes.set("original_positions", std::int64_t{8});
  if (by_length == ByLength::dynamic) {
    c.attributes.set("dynamic_theta", 10000.0);
    c.attributes.set("dynamic_factor", 4.0);
  } else if (by_length == ByLength::longrope) {
    std::vector<double> list = inverse_frequencies(half);
    for (double& frequency : list) frequency /= 2.5;
    c.attributes.set("long_inv_freq", list);
  }
  return c;
}

/// Rotates pairs (j, j + R/2) of every head by `sign` times the angle of the token.
Outputs rotated(const Case& c, double sign) {
  const Operand &x = c.in[0], &cos = c.in[1], &sin = c.in[2];
  const std::int64_t heads = x.shape[1], dimensions = x.shape[2], half = cos.shape[1];
  return {elements(x.shape.elements(), [&](std::int64_t i) {
    const std::int64_t t = i / (heads * dimensions), d = i % dimensions, j = d % half;
    if (d >= 2 * half) return Real(x[i]);
    const Real cosine = cos[t * half + j], sine = sign * sin[t * half + j];
    return d < half ? x[i] * cosine - x[i + half] * sine : x[i] * cosine + x[i - half] * sine;
  })};
}

double rope_objective(const Case& c) {
  const Case forward{.name = "", .in = {c.unseen[0], c.in[1], c.in[2]}, .out = {}, .attributes = {}, .scalars = {}};
  return inner_product(c.in[0], rotated(forward, 1.0)[0]);
}

Case rope_case(Precision p, Shape shape, std::int64_t half) {
  const Case table = rope_table_case(p, {0.0, static_cast<double>(shape[0])}, half, 1.0, ByLength::no);
  const Outputs angles = rope_table_reference(table);
  const Shape table_shape{shape[0], half};
  return {.name = fmt::format("{} R/2 {}", shape.text(), half),
          .in = {random(p.activation, shape, 1), rounded(p.single, table_shape, angles[0]),
                 rounded(p.single, table_shape, angles[1])},
          .out = {output(p.activation, shape)},
          .attributes = {},
          .scalars = {.tokens = shape[0]},
          .unseen = {random(p.activation, shape, 2)}};
}

std::vector<Case> rope_cases(Precision p) {
  return {rope_case(p, {1, 1, 2}, 1), rope_case(p, {13, 3, 14}, 5), rope_case(p, {70, 4, 64}, 32)};
}

Case large_rope_case(Precision p) { return rope_case(p, {4096, 32, 64}, 32); }

Outputs dropout_reference(const Case& c) {
  const Operand& x = c.in[0];
  const std::int64_t width = x.shape[1];
  const double p = c.attributes.real("p");
  const auto stream = static_cast<std::uint64_t>(c.attributes.integer("stream"));
  return {elements(x.shape.elements(), [&](std::int64_t at) {
    const std::int64_t row = at / width, i = at % width;
    const auto words = philox(c.scalars.seed, static_cast<std::uint64_t>(row * ((width + 3) / 4) + i / 4),
                              (stream << 40) ^ c.scalars.micro_batch);
    const bool is_kept = static_cast<double>(uniform_from(words[static_cast<std::size_t>(i % 4)])) >= p;
    return is_kept ? x[at] * stored(DType::f32, 1.0 / (1.0 - p)) : Real(0.0);
  })};
}

Case dropout_case(Precision p, std::int64_t rows, std::int64_t width, double probability) {
  return {.name = fmt::format("[{}, {}] p {}", rows, width, probability),
          .in = {random(p.activation, {rows, width}, 1)},
          .out = {output(p.activation, {rows, width})},
          .attributes = {{"p", probability}, {"stream", std::int64_t{5}}},
          .scalars = {.tokens = rows, .seed = 42, .micro_batch = 3}};
}

Outputs kv_append_reference(const Case& c) {
  const std::int64_t row = c.in[0].shape[1] * c.in[0].shape[2];
  return {elements(c.out[0].shape.elements(), [&](std::int64_t i) {
    const std::int64_t t = i / row - c.scalars.past;
    return Real(t >= 0 && t < c.in[0].shape[0] ? c.in[0][t * row + i % row] : c.out[0][i]);
  })};
}

Case kv_append_case(Precision p, std::int64_t tokens, std::int64_t past, std::int64_t capacity) {
  return {.name = fmt::format("T {} past {} of {}", tokens, past, capacity),
          .in = {random(p.activation, {tokens, 3, 20}, 1)},
          .out = {random(p.activation, {capacity, 3, 20}, 2)},
          .attributes = {},
          .scalars = {.tokens = tokens, .past = past}};
}

}  // namespace

std::vector<Operation> position_operations() {
  return {
      {.name = "rope_table",
       .cases = [](Precision p) -> std::vector<Case> {
         return {rope_table_case(p, {0, 1}, 1, 1.0, ByLength::no),
                 rope_table_case(p, {0, 5, 130}, 33, 1.2, ByLength::no),
                 rope_table_case(p, {0, 7, 27, 29}, 16, 1.0, ByLength::dynamic),
                 rope_table_case(p, {0, 7, 27, 29}, 16, 1.2, ByLength::longrope)};
       },
       .reference = rope_table_reference,
       .precisions = {DType::f32}},
      {.name = "rope",
       .cases = rope_cases,
       .reference = [](const Case& c) { return rotated(c, 1.0); },
       .aliases = {{{.output = 0, .input = 0}}},
       .large = large_rope_case},
      {.name = "rope_backward",
       .cases = rope_cases,
       .reference = [](const Case& c) { return rotated(c, -1.0); },
       .aliases = {{{.output = 0, .input = 0}}},
       .objective = rope_objective,
       .derivatives = {{.output = 0, .input = 3}},
       .large = large_rope_case},
      {.name = "dropout",
       .cases = [](Precision p) -> std::vector<Case> {
         return {dropout_case(p, 1, 1, 0.5), dropout_case(p, 130, 37, 0.1), dropout_case(p, 9, 300, 0.3)};
       },
       .reference = dropout_reference,
       .aliases = {{{.output = 0, .input = 0}}},
       .large = [](Precision p) { return dropout_case(p, 8192, 2048, 0.1); }},
      {.name = "kv_append",
       .cases = [](Precision p) -> std::vector<Case> {
         return {kv_append_case(p, 1, 0, 1), kv_append_case(p, 7, 4, 16), kv_append_case(p, 1, 15, 16)};
       },
       .reference = kv_append_reference},
  };
}

}  // namespace heddle::conformance
