#include <utility>

#include "operation.h"

namespace heddle::conformance {
namespace {

/// Which key positions a query sees, and the probabilities it gives them: rows of the matrix that the fast kernels
/// never form.
class Probabilities {
 public:
  Probabilities(const Case& c, const Operand& q, const Operand& k, const Operand& document_starts)
      : case_(c), q_(q), k_(k), starts_(document_starts) {}

  std::int64_t heads() const { return q_.shape[1]; }
  std::int64_t kv_heads() const { return k_.shape[1]; }
  std::int64_t head_dim() const { return q_.shape[2]; }
  std::int64_t kv_head(std::int64_t n) const { return n / (heads() / kv_heads()); }
  std::int64_t position(std::int64_t t) const { return is_cached() ? case_.scalars.past + t : t; }
  std::int64_t last(std::int64_t t) const { return position(t); }
  std::int64_t first(std::int64_t t) const {
    std::int64_t start = 0;
    if (!is_cached()) {
      for (std::int64_t d = 0; d <= case_.scalars.documents; ++d) {
        if (starts_[d] <= static_cast<double>(t)) start = static_cast<std::int64_t>(starts_[d]);
      }
    }
    const std::int64_t window = case_.attributes.integer("window");
    return window == 0 ? start : std::max(start, position(t) - window + 1);
  }
  /// s = scale q.k, capped.
  Real score(std::int64_t t, std::int64_t n, std::int64_t j) const {
    const Real product = sum(head_dim(), [&](std::int64_t d) {
      return Real(q_[(t * heads() + n) * head_dim() + d]) * k_[(j * kv_heads() + kv_head(n)) * head_dim() + d];
    });
    const Real s = stored(DType::f32, case_.attributes.real("scale", 1.0)) * product;
    const double cap = case_.attributes.real("softcap");
    return cap == 0.0 ? s : cap * tanh(s / cap);
  }
  /// What dropout multiplies a probability by: 0 or 1 / (1 - p). Words as kernels/cpu/attention_call.h lays them out.
  Real dropout(std::int64_t t, std::int64_t n, std::int64_t j) const {
    const double p = case_.attributes.real("dropout");
    if (p == 0.0) return 1.0;
    const auto stream = static_cast<std::uint64_t>(case_.attributes.integer("dropout_stream"));
    const auto words = philox(case_.scalars.seed, static_cast<std::uint64_t>(n << 52 | t << 26 | j / 4),
                              stream << 40 ^ case_.scalars.micro_batch);
    const bool is_kept = static_cast<double>(uniform_from(words[static_cast<std::size_t>(j % 4)])) >= p;
    return is_kept ? stored(DType::f32, 1.0 / (1.0 - p)) : Real(0.0);
  }
  /// log of the sum of exp(score) over visible keys.
  Real log_sum(std::int64_t t, std::int64_t n) const {
    double greatest = -1e300;
    for (std::int64_t j = first(t); j <= last(t); ++j) greatest = std::max(greatest, score(t, n, j).value);
    const Real total =
        sum(last(t) - first(t) + 1, [&](std::int64_t i) { return exp(score(t, n, first(t) + i) - greatest); });
    return greatest + log(total);
  }

 private:
  bool is_cached() const { return case_.attributes.integer("cached") != 0; }
  const Case& case_;
  const Operand &q_, &k_, &starts_;
};

/// A probability, or the gradient of a score, as the products take it: beside operands in bf16 rounded to that. (Which
/// multiple of the probability is rounded depends on the order of the keys; the bound of its error does not.)
Real taken(const Case& c, const Real& x) { return c.in[1].dtype == DType::bf16 ? stored(DType::bf16, x) : x; }

Outputs attention_reference(const Case& c) {
  const Operand& v = c.in[2];
  const Probabilities p(c, c.in[0], c.in[1], c.in[3]);
  const std::int64_t tokens = c.in[0].shape[0], heads = p.heads(), dimensions = p.head_dim();
  Outputs outputs = {std::vector<Real>(static_cast<std::size_t>(tokens * heads * dimensions)),
                     std::vector<Real>(static_cast<std::size_t>(tokens * heads))};
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t n = 0; n < heads; ++n) {
      const std::int64_t first = p.first(t), count = p.last(t) - first + 1;
      const Real lse = p.log_sum(t, n);
      const auto row = elements(count, [&](std::int64_t i) {
        return taken(c, exp(p.score(t, n, first + i) - lse) * p.dropout(t, n, first + i));
      });
      outputs[1][static_cast<std::size_t>(n * tokens + t)] = lse;
      for (std::int64_t d = 0; d < dimensions; ++d) {
        outputs[0][static_cast<std::size_t>((t * heads + n) * dimensions + d)] = sum(count, [&](std::int64_t i) {
          return row[static_cast<std::size_t>(i)] * v[((first + i) * p.kv_heads() + p.kv_head(n)) * dimensions + d];
        });
      }
    }
  }
  return outputs;
}

/// Through the whole matrix of probabilities p with dropout factors m: ds = p (m do.v - do.o), and d tanh for a cap.
Outputs attention_backward_reference(const Case& c) {
  const Operand &gradient = c.in[0], &q = c.in[1], &k = c.in[2], &v = c.in[3], &o = c.in[4], &lse = c.in[5];
  const Probabilities p(c, q, k, c.in[6]);
  const std::int64_t tokens = q.shape[0], heads = p.heads(), kv_heads = p.kv_heads(), dimensions = p.head_dim();
  const Real scale = stored(DType::f32, c.attributes.real("scale", 1.0));
  const double cap = c.attributes.real("softcap");
  // [n][t][j]; zero where key j is not seen.
  const auto matrix = [&] { return std::vector<Real>(static_cast<std::size_t>(heads * tokens * tokens)); };
  const auto at = [&](std::int64_t n, std::int64_t t, std::int64_t j) {
    return static_cast<std::size_t>((n * tokens + t) * tokens + j);
  };
  std::vector<Real> weight = matrix(), ds = matrix();
  for (std::int64_t n = 0; n < heads; ++n) {
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int64_t row = (t * heads + n) * dimensions;
      const Real delta = sum(dimensions, [&](std::int64_t d) { return Real(gradient[row + d]) * o[row + d]; });
      for (std::int64_t j = p.first(t); j <= p.last(t); ++j) {
        const Real s = p.score(t, n, j);
        const Real dp = sum(dimensions, [&](std::int64_t d) {
          return Real(gradient[row + d]) * v[(j * kv_heads + p.kv_head(n)) * dimensions + d];
        });
        const Real slope = cap == 0.0 ? Real(1.0) : 1.0 - (s / cap) * (s / cap);
        const Real probability = exp(s - lse[n * tokens + t]), kept = p.dropout(t, n, j);
        weight[at(n, t, j)] = taken(c, probability * kept);
        ds[at(n, t, j)] = taken(c, probability * (kept * dp - delta) * slope);
      }
    }
  }
  const std::int64_t group = heads / kv_heads;
  const auto dq = elements(q.shape.elements(), [&](std::int64_t i) {
    const std::int64_t t = i / (heads * dimensions), n = i / dimensions % heads, d = i % dimensions;
    return scale * sum(tokens, [&](std::int64_t j) {
             return ds[at(n, t, j)] * k[(j * kv_heads + p.kv_head(n)) * dimensions + d];
           });
  });
  // Sum over the queries of all heads of the group.
  const auto over_queries = [&](const std::vector<Real>& factors, const Operand& rows, std::int64_t i) {
    const std::int64_t j = i / (kv_heads * dimensions), head = i / dimensions % kv_heads, d = i % dimensions;
    return sum(group * tokens, [&](std::int64_t m) {
      const std::int64_t n = head * group + m / tokens, t = m % tokens;
      return factors[at(n, t, j)] * rows[(t * heads + n) * dimensions + d];
    });
  };
  const auto dk = elements(k.shape.elements(), [&](std::int64_t i) { return scale * over_queries(ds, q, i); });
  const auto dv = elements(v.shape.elements(), [&](std::int64_t i) { return over_queries(weight, gradient, i); });
  return {dq, dk, dv, {}, {}};
}

double attention_objective(const Case& c) {
  const Case forward{.name = "",
                     .in = {c.in[1], c.in[2], c.in[3], c.in[6]},
                     .out = {},
                     .attributes = c.attributes,
                     .scalars = c.scalars};
  return inner_product(c.in[0], attention_reference(forward)[0]);
}

struct Extents {
  std::int64_t tokens, heads, kv_heads, head_dim;
  std::string text() const { return fmt::format("T {} N {} K {} D {}", tokens, heads, kv_heads, head_dim); }
};

/// Training: documents that start at `starts`, the last of which is T.
Case attention_case(Precision p, Extents e, std::vector<double> starts, std::int64_t window, double softcap) {
  const DType a = p.activation;
  const Shape q{e.tokens, e.heads, e.head_dim}, k{e.tokens, e.kv_heads, e.head_dim};
  const auto documents = static_cast<std::int64_t>(starts.size()) - 1;
  return {.name = fmt::format("{} documents {} window {} softcap {}", e.text(), documents, window, softcap),
          .in = {random(a, q, 1), random(a, k, 2), random(a, k, 3), given(DType::i32, {documents + 1}, starts)},
          .out = {output(a, q), output(p.single, {e.heads, e.tokens})},
          .attributes = {{"scale", 1.0 / std::sqrt(static_cast<double>(e.head_dim))},
                         {"window", window},
                         {"softcap", softcap}},
          .scalars = {.tokens = e.tokens, .documents = documents}};
}

/// Generation: `past` positions lie in a cache of `capacity` rows.
Case cached_case(Precision p, Extents e, std::int64_t past, std::int64_t capacity, std::int64_t window) {
  Case c = attention_case(p, e, {0.0, static_cast<double>(e.tokens)}, window, 0.0);
  c.name += fmt::format(" past {} of {}", past, capacity);
  c.in[1] = random(p.activation, {capacity, e.kv_heads, e.head_dim}, 2);
  c.in[2] = random(p.activation, {capacity, e.kv_heads, e.head_dim}, 3);
  c.attributes.set("cached", std::int64_t{1});
  c.scalars.past = past;
  return c;
}

Case dropout_case(Precision p, Extents e, std::vector<double> starts, double probability) {
  Case c = attention_case(p, e, std::move(starts), 0, 0.0);
  c.name += fmt::format(" dropout {}", probability);
  c.attributes.set("dropout", probability);
  c.attributes.set("dropout_stream", std::int64_t{9});
  c.scalars.seed = 42;
  c.scalars.micro_batch = 3;
  return c;
}

/// The statistics that the forward saves, from its reference or, where that would take long, zeros.
Case attention_backward_case(Precision p, const Case& forward, bool is_timed = false) {
  const Operand &q = forward.in[0], &k = forward.in[1];
  const Shape lse{q.shape[1], q.shape[0]};
  const Outputs saved = is_timed ? Outputs{std::vector<Real>(static_cast<std::size_t>(q.shape.elements())),
                                           std::vector<Real>(static_cast<std::size_t>(lse.elements()))}
                                 : attention_reference(forward);
  return {.name = forward.name,
          .in = {random(p.activation, q.shape, 11), q, k, forward.in[2], rounded(p.activation, q.shape, saved[0]),
                 rounded(p.single, lse, saved[1]), forward.in[3]},
          .out = {output(p.activation, q.shape), output(p.activation, k.shape), output(p.activation, k.shape),
                  workspace(lse), p.activation == DType::f32 ? absent() : workspace(q.shape)},
          .attributes = forward.attributes,
          .scalars = forward.scalars};
}

std::vector<Case> training_cases(Precision p) {
  return {attention_case(p, {1, 1, 1, 4}, {0, 1}, 0, 0.0),
          attention_case(p, {37, 4, 2, 12}, {0, 37}, 0, 0.0),
          attention_case(p, {70, 2, 1, 20}, {0, 3, 4, 69, 70}, 0, 0.0),
          attention_case(p, {66, 3, 3, 16}, {0, 20, 66}, 7, 0.0),
          attention_case(p, {33, 2, 2, 8}, {0, 33}, 0, 1.5),
          dropout_case(p, {70, 4, 2, 12}, {0, 30, 70}, 0.2)};
}

const Extents kLarge{.tokens = 2048, .heads = 16, .kv_heads = 4, .head_dim = 64};
Case large_case(Precision p) { return attention_case(p, kLarge, {0.0, static_cast<double>(kLarge.tokens)}, 0, 0.0); }
double visible_pairs() {
  return static_cast<double>(kLarge.heads * kLarge.tokens) * static_cast<double>(kLarge.tokens + 1) / 2;
}

}  // namespace

std::vector<Operation> attention_operations() {
  return {
      {.name = "attention",
       .cases =
           [](Precision p) {
             std::vector<Case> list = training_cases(p);
             list.push_back(cached_case(p, {1, 4, 2, 16}, 0, 5, 0));
             list.push_back(cached_case(p, {1, 4, 1, 20}, 100, 130, 0));
             list.push_back(cached_case(p, {9, 2, 2, 12}, 60, 70, 16));
             return list;
           },
       .reference = attention_reference,
       .large = large_case,
       .flops = [](const Case&) { return 4.0 * visible_pairs() * static_cast<double>(kLarge.head_dim); }},
      {.name = "attention_backward",
       .cases =
           [](Precision p) {
             std::vector<Case> list;
             for (const Case& forward : training_cases(p)) list.push_back(attention_backward_case(p, forward));
             return list;
           },
       .reference = attention_backward_reference,
       .objective = attention_objective,
       .derivatives = {{.output = 0, .input = 1}, {.output = 1, .input = 2}, {.output = 2, .input = 3}},
       .large = [](Precision p) { return attention_backward_case(p, large_case(p), true); },
       .flops = [](const Case&) { return 10.0 * visible_pairs() * static_cast<double>(kLarge.head_dim); }},
  };
}

}  // namespace heddle::conformance
