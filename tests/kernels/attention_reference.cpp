#include "kernels/attention_reference.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace heddle::reference {
namespace {

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

/// One query's visible keys [first, t] with their scores, the scores' derivative by the uncapped ones, and
/// probabilities.
struct Row {
  std::int64_t first = 0;
  std::vector<double> slope, probability;
  double lse = 0.0;
};

double dot(std::span<const double> a, std::span<const double> b, std::int64_t a_row, std::int64_t b_row,
           std::int64_t n) {
  double sum = 0.0;
  for (std::int64_t c = 0; c < n; ++c) sum += a[index(a_row * n + c)] * b[index(b_row * n + c)];
  return sum;
}

Row probabilities(const AttentionProblem& x, std::span<const double> q, std::span<const double> k, std::int64_t t,
                  std::int64_t n, std::int64_t document_start) {
  Row row;
  row.first = x.window > 0 ? std::max(document_start, t - x.window + 1) : document_start;
  const std::int64_t kv_head = n / (x.heads / x.kv_heads);
  std::vector<double> score;
  for (std::int64_t j = row.first; j <= t; ++j) {
    double s = x.scale * dot(q, k, t * x.heads + n, j * x.kv_heads + kv_head, x.head_dim);
    double slope = 1.0;
    if (x.softcap > 0.0) {
      const double tangent = std::tanh(s / x.softcap);
      s = x.softcap * tangent;
      slope = 1.0 - tangent * tangent;
    }
    score.push_back(s);
    row.slope.push_back(slope);
  }
  const double maximum = *std::max_element(score.begin(), score.end());
  double sum = 0.0;
  for (double s : score) sum += std::exp(s - maximum);
  row.lse = maximum + std::log(sum);
  for (double s : score) row.probability.push_back(std::exp(s - row.lse));
  return row;
}

/// Calls f(t, start of its document) for every token.
template <typename Function>
void for_each_token(const AttentionProblem& x, const Function& f) {
  std::int64_t start = 0;
  for (std::int64_t length : x.lengths) {
    for (std::int64_t t = start; t < start + length; ++t) f(t, start);
    start += length;
  }
}

}  // namespace

std::int64_t AttentionProblem::tokens() const {
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

std::vector<std::int32_t> AttentionProblem::document_starts() const {
  std::vector<std::int32_t> starts{0};
  for (std::int64_t length : lengths) starts.push_back(starts.back() + static_cast<std::int32_t>(length));
  return starts;
}

AttentionResult attention(const AttentionProblem& x, std::span<const double> q, std::span<const double> k,
                          std::span<const double> v) {
  AttentionResult result;
  result.o.assign(index(x.query_elements()), 0.0);
  result.lse.assign(index(x.heads * x.tokens()), 0.0);
  for_each_token(x, [&](std::int64_t t, std::int64_t start) {
    for (std::int64_t n = 0; n < x.heads; ++n) {
      const Row row = probabilities(x, q, k, t, n, start);
      result.lse[index(n * x.tokens() + t)] = row.lse;
      for (std::int64_t j = row.first; j <= t; ++j) {
        const double p = row.probability[index(j - row.first)] * (x.dropout ? x.dropout(t, n, j) : 1.0);
        const std::int64_t kv_row = j * x.kv_heads + n / (x.heads / x.kv_heads);
        for (std::int64_t c = 0; c < x.head_dim; ++c) {
          result.o[index((t * x.heads + n) * x.head_dim + c)] += p * v[index(kv_row * x.head_dim + c)];
        }
      }
    }
  });
  return result;
}

AttentionGradients attention_backward(const AttentionProblem& x, std::span<const double> d_output,
                                      std::span<const double> q, std::span<const double> k, std::span<const double> v) {
  AttentionGradients g;
  g.dq.assign(q.size(), 0.0);
  g.dk.assign(k.size(), 0.0);
  g.dv.assign(v.size(), 0.0);
  for_each_token(x, [&](std::int64_t t, std::int64_t start) {
    for (std::int64_t n = 0; n < x.heads; ++n) {
      const Row row = probabilities(x, q, k, t, n, start);
      const std::int64_t q_row = t * x.heads + n, kv_head = n / (x.heads / x.kv_heads);
      std::vector<double> dp;
      double sum = 0.0;
      for (std::int64_t j = row.first; j <= t; ++j) {
        const double factor = x.dropout ? x.dropout(t, n, j) : 1.0;
        const std::int64_t kv_row = j * x.kv_heads + kv_head;
        dp.push_back(factor * dot(d_output, v, q_row, kv_row, x.head_dim));
        const double p = row.probability[index(j - row.first)];
        sum += p * dp.back();
        for (std::int64_t c = 0; c < x.head_dim; ++c) {
          g.dv[index(kv_row * x.head_dim + c)] += p * factor * d_output[index(q_row * x.head_dim + c)];
        }
      }
      for (std::int64_t j = row.first; j <= t; ++j) {
        const std::size_t i = index(j - row.first);
        const double ds = x.scale * row.probability[i] * (dp[i] - sum) * row.slope[i];
        const double uncancelled = x.scale * row.probability[i] * std::max(std::abs(dp[i]), std::abs(sum));
        const std::int64_t kv_row = j * x.kv_heads + kv_head;
        for (std::int64_t c = 0; c < x.head_dim; ++c) {
          const double k_value = k[index(kv_row * x.head_dim + c)], q_value = q[index(q_row * x.head_dim + c)];
          g.largest_term = std::max(g.largest_term, uncancelled * std::max(std::abs(k_value), std::abs(q_value)));
          g.dq[index(q_row * x.head_dim + c)] += ds * k_value;
          g.dk[index(kv_row * x.head_dim + c)] += ds * q_value;
        }
      }
    }
  });
  return g;
}

}  // namespace heddle::reference
