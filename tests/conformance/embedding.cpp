#include "operation.h"

namespace heddle::conformance {
namespace {

Outputs embedding_reference(const Case& c) {
  const std::int64_t hidden = c.in[1].shape[1];
  return {elements(c.out[0].shape.elements(), [&](std::int64_t i) {
    return Real(c.in[1][static_cast<std::int64_t>(c.in[0][i / hidden]) * hidden + i % hidden]);
  })};
}

Outputs embedding_backward_reference(const Case& c) {
  const std::int64_t hidden = c.in[1].shape[1], tokens = c.in[1].shape[0];
  return {elements(c.out[0].shape.elements(), [&](std::int64_t i) {
    const double id = static_cast<double>(i / hidden);
    return initial(c, 0, i) +
           sum(tokens, [&](std::int64_t t) { return c.in[0][t] == id ? c.in[1][t * hidden + i % hidden] : 0.0; });
  })};
}

double embedding_objective(const Case& c) {
  const Case forward{.name = "",
                     .in = {c.in[0], c.unseen[0]},
                     .out = {output(DType::f64, c.in[1].shape)},
                     .attributes = {},
                     .scalars = {}};
  return inner_product(c.in[1], embedding_reference(forward)[0]);
}

Case embedding_case(Precision p, std::int64_t tokens, std::int64_t vocabulary, std::int64_t hidden) {
  return {.name = fmt::format("T {} V {} H {}", tokens, vocabulary, hidden),
          .in = {random_ids({tokens}, vocabulary, 1), random(p.activation, {vocabulary, hidden}, 2)},
          .out = {output(p.activation, {tokens, hidden})},
          .attributes = {},
          .scalars = {.tokens = tokens}};
}

Case embedding_backward_case(Precision p, std::int64_t tokens, std::int64_t vocabulary, std::int64_t hidden,
                             Accumulate mode, bool first) {
  return {.name = fmt::format("T {} V {} H {} accumulate {}", tokens, vocabulary, hidden, static_cast<int>(mode)),
          .in = {random_ids({tokens}, vocabulary, 1), random(p.activation, {tokens, hidden}, 2)},
          .out = {gradient_output(p, {vocabulary, hidden}, mode, first, 3)},
          .attributes = {{"accumulate", static_cast<std::int64_t>(mode)}},
          .scalars = {.tokens = tokens, .first_micro_batch = first},
          .unseen = {random(p.activation, {vocabulary, hidden}, 4)}};
}

/// Of `count` matrices [T, H]: rows of the table that no token names stay untouched.
double rows_bytes(const Case& c, double count) {
  return count * static_cast<double>(c.in[0].shape[0] * c.in[1].shape[1]) *
         static_cast<double>(dtype_bytes(c.in[1].dtype));
}

}  // namespace

std::vector<Operation> embedding_operations() {
  return {
      {.name = "embedding",
       .cases = [](Precision p) -> std::vector<Case> {
         return {embedding_case(p, 1, 1, 1), embedding_case(p, 130, 11, 33), embedding_case(p, 5, 300, 256)};
       },
       .reference = embedding_reference,
       .large = [](Precision p) { return embedding_case(p, 8192, 32768, 2048); },
       .bytes = [](const Case& c) { return rows_bytes(c, 2.0); }},
      {.name = "embedding_backward",
       .cases = [](Precision p) -> std::vector<Case> {
         return {embedding_backward_case(p, 1, 1, 1, Accumulate::overwrite, true),
                 embedding_backward_case(p, 130, 11, 33, Accumulate::add, true),
                 embedding_backward_case(p, 40, 30, 300, Accumulate::add_after_first, true),
                 embedding_backward_case(p, 40, 30, 129, Accumulate::add_after_first, false)};
       },
       .reference = embedding_backward_reference,
       .objective = embedding_objective,
       .derivatives = {{.output = 0, .input = 2}},
       .large = [](Precision p) { return embedding_backward_case(p, 8192, 32768, 2048, Accumulate::add, true); },
       .bytes = [](const Case& c) { return rows_bytes(c, 1.0) + 8.0 * static_cast<double>(c.in[1].shape.elements()); }},
  };
}

}  // namespace heddle::conformance
