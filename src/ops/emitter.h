#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/operation.h"

namespace heddle {

/// How a weight starts when there is no file to read it from.
struct Initialization {
  enum class Kind { zeros, ones, normal, uniform };
  Kind kind = Kind::normal;
  double spread = 0.02;  ///< standard deviation, or the bound of a uniform distribution around zero

  static Initialization normal(double standard_deviation) { return {Kind::normal, standard_deviation}; }
  static Initialization uniform(double bound) { return {Kind::uniform, bound}; }
  static Initialization zeros() { return {Kind::zeros, 0}; }
  static Initialization ones() { return {Kind::ones, 0}; }
};

/// What an adapter makes of the logits: it adds x·weightᵀ, x [T,r], weight [V,r], and with DoRA multiplies the sums by
/// magnitude / norms [V]; or it puts `rows` [n,H] in place of some of the head's, those of the ids in the attributes
/// row_ids and row_places. What it does not have is absent.
struct HeadAdapter {
  Value x, weight, rows, magnitude, norms;
  bool present() const { return x.present() || rows.present(); }
};

/// What a model family sees: it names weights and emits operations, and knows nothing of what becomes of them. T is the
/// capacity in tokens. Each call adds to a straight list.
class Emitter {
 public:
  virtual ~Emitter() = default;

  /// The weight of that name; the first call decides shape and initialisation, a second one gives the same value
  /// (tied weights).
  virtual Value weight(const std::string& name, Shape shape, Initialization initialization) = 0;
  /// Outputs of a new instruction.
  virtual std::vector<Value> emit(std::string_view operation, std::vector<Value> inputs, Attributes attributes) = 0;
  virtual const ValueType& type(Value value) const = 0;
  /// What follows belongs to this unit: "embedding", "block 3", "head".
  virtual void begin_unit(std::string name) = 0;
  /// Whether what follows is a block's MLP, in which each token's row is computed from its own alone; see MlpScope.
  virtual void set_in_mlp(bool /*is_inside*/) {}

  // The stream of a micro-batch.
  virtual Value input_ids() = 0;        // i32 [T]
  virtual Value positions() = 0;        // i32 [T]
  virtual Value document_starts() = 0;  // i32 [documents + 1]

  /// Causal attention over each document; in generation over the key-value cache.   q [T,N,D], k, v [T,K,D] -> [T,N,D]
  virtual Value attention(Value q, Value k, Value v, Attributes attributes) = 0;
  /// cos and sin of each position, f32 [T, R/2].
  virtual std::vector<Value> rope_table(Attributes attributes) = 0;
  /// What the program is for: the loss over the labels, or the logits of the last token.   x [T,H], weight [V,H]
  void language_model_head(Value x, Value weight, Attributes attributes) {
    emit_head(x, weight, {}, std::move(attributes));
  }
  /// The same with an adapter.
  virtual void emit_head(Value x, Value weight, const HeadAdapter& adapter, Attributes attributes) = 0;

  Value linear(Value x, Value weight, Value bias = {}, bool transposed = false);
  Value rms_norm(Value x, Value weight, double epsilon, double weight_offset = 0.0);
  Value layer_norm(Value x, Value weight, Value bias, double epsilon);
  /// `padding_id`: the id of which the look-up has no gradient; -1: none.
  Value embedding(Value ids, Value weight, std::int64_t padding_id = -1);
  Value add(Value a, Value b);
  Value scale(Value x, double factor);  // x itself when factor is 1
  Value activation(Value x, Activation activation);
  Value glu(Value gate, Value up, Activation activation);
  /// x itself when probability is 0. Each call draws from a stream of its own.
  Value dropout(Value x, double probability);
  /// Columns of x [T, sum of widths].
  std::vector<Value> split(Value x, const std::vector<std::int64_t>& widths);
  /// The same memory with another shape; the first extent stays.
  virtual Value reshape(Value x, Shape shape) = 0;
  Value split_heads(Value x, std::int64_t heads);  // [T, N*D] as [T, N, D]
  Value merge_heads(Value x);                      // [T, N, D] as [T, N*D]
  /// Attributes of dropout inside another operation.
  std::int64_t next_dropout_stream() { return ++dropout_streams_; }

 private:
  std::int64_t dropout_streams_ = 0;
};

/// What is emitted while it lives is a block's MLP.
class MlpScope {
 public:
  explicit MlpScope(Emitter& e) : e_(e) { e_.set_in_mlp(true); }
  ~MlpScope() { e_.set_in_mlp(false); }
  MlpScope(const MlpScope&) = delete;
  MlpScope& operator=(const MlpScope&) = delete;

 private:
  Emitter& e_;
};

}  // namespace heddle
