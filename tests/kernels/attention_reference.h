#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

/// Attention as the textbooks write it, in double precision, one score at a time.
namespace heddle::reference {

struct AttentionProblem {
  std::vector<std::int64_t> lengths;  ///< of the documents, end to end in one stream of T tokens
  std::int64_t heads = 1;             ///< N
  std::int64_t kv_heads = 1;          ///< K
  std::int64_t head_dim = 8;          ///< D
  double scale = 1.0;
  std::int64_t window = 0;  ///< 0: none
  double softcap = 0.0;     ///< 0: none
  /// What dropout multiplies the normalised probability of query t, head n, key j with; empty: nothing.
  std::function<double(std::int64_t t, std::int64_t n, std::int64_t j)> dropout;

  std::int64_t tokens() const;
  std::vector<std::int32_t> document_starts() const;
  std::int64_t query_elements() const { return tokens() * heads * head_dim; }
  std::int64_t key_elements() const { return tokens() * kv_heads * head_dim; }
};

struct AttentionResult {
  std::vector<double> o;    ///< [T, N, D]
  std::vector<double> lse;  ///< [N, T]
};
AttentionResult attention(const AttentionProblem& problem, std::span<const double> q, std::span<const double> k,
                          std::span<const double> v);

struct AttentionGradients {
  std::vector<double> dq, dk, dv;
  /// Largest term of dq and dk before dP - rowsum(P dP) cancels, which is what their rounding errors are relative to: a
  /// document of one token has gradients of exactly 0.
  double largest_term = 0.0;
};
/// With P the probabilities and M the dropout factors: dV = (P M)^T dO, dP = M (dO V^T), dS = P (dP - rowsum(P dP)),
/// through the softcap, then dQ = scale dS K and dK = scale dS^T Q.
AttentionGradients attention_backward(const AttentionProblem& problem, std::span<const double> d_output,
                                      std::span<const double> q, std::span<const double> k, std::span<const double> v);

}  // namespace heddle::reference
