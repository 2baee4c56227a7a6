#pragma once

#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "program/optimizer.h"
#include "program/program.h"

namespace heddle {

/// Collects the forward of a model into a StepProgram. Give one `Parameters` to all programs of a run, so that they
/// share weights.
class Parameters {
 public:
  std::vector<Parameter> list;
  OptimizerSettings optimizer;  ///< of the training run: which states belong to each
  Parameter& add_or_get(const std::string& name, const Shape& shape, Initialization initialization, int unit);
  const Parameter* find(const std::string& name) const;
  std::int64_t count() const;  ///< elements of all
  std::int64_t trainable_count() const;

 private:
  std::unordered_map<std::string, std::size_t> index_;
};

/// What a run makes of a weight, besides computing with it.
struct WeightTreatment {
  bool is_trainable = true;
  // See Parameter.
  std::optional<DType> storage = {};
  double learning_rate_scale = 1.0;
  std::optional<double> weight_decay = {};
};

/// The loss of pairs of documents; see preference_loss in ops/operations.md.
struct PreferenceLoss {
  PreferenceLossType type = PreferenceLossType::sigmoid;
  double beta = 0.1, label_smoothing = 0.0;
};

class ProgramBuilder : public Emitter {
 public:
  /// What the program ends in: the loss over the labels, the loss of pairs of documents, what each document's labels
  /// are worth, or the logits of the last token.
  enum class Purpose { loss, preference_loss, log_probs, generation };
  struct Options {
    std::string name;
    DType activation_type = DType::f32;
    Purpose purpose = Purpose::loss;
    std::int64_t token_capacity = 0;
    std::int64_t document_capacity = 1;
    std::int64_t cache_capacity = 0;  ///< generation: positions in the key-value cache
    PreferenceLoss preference = {};   ///< of preference_loss
    std::function<WeightTreatment(const std::string& name)> treatment = {};  ///< absent: all is trained
  };
  ProgramBuilder(Options options, Parameters& parameters);

  Value weight(const std::string& name, Shape shape, Initialization initialization) override;
  std::vector<Value> emit(std::string_view operation, std::vector<Value> inputs, Attributes attributes) override;
  const ValueType& type(Value value) const override { return program_.at(value.id).type; }
  void begin_unit(std::string name) override;
  void set_in_mlp(bool is_inside) override { is_in_mlp_ = is_inside; }
  Value input_ids() override { return ids_; }
  Value positions() override { return positions_; }
  Value document_starts() override { return document_starts_; }
  Value attention(Value q, Value k, Value v, Attributes attributes) override;
  std::vector<Value> rope_table(Attributes attributes) override;
  void emit_head(Value x, Value weight, const HeadAdapter& adapter, Attributes attributes) override;
  Value reshape(Value x, Shape shape) override;

  StepProgram take() { return std::move(program_); }

 private:
  void end_in_generation(Value x, Value weight, const HeadAdapter& adapter, const Attributes& attributes);
  void end_in_log_probs(Value x, Value weight, const HeadAdapter& adapter, const Attributes& attributes);
  /// Appends an instruction that writes buffers of the trainer's; where one is absent, the instruction makes its own.
  std::vector<int> append(std::string_view operation, const std::vector<Value>& inputs, Attributes attributes,
                          const std::vector<Value>& outputs);
  Value persistent(std::string_view label, DType type, Shape shape, BufferClass buffer_class, int token_axis = -1);

  Options options_;
  Parameters* parameters_;
  StepProgram program_;
  std::unordered_map<std::string, int> weights_;
  Value ids_, labels_, positions_, document_starts_;
  int caches_ = 0;
  bool is_in_mlp_ = false;
};

/// Appends an instruction; outputs that `given` lacks are made. Shared by the builder and the passes.
std::vector<int> append_instruction(StepProgram& program, const Operation& operation, std::vector<int> inputs,
                                    Attributes attributes, const std::vector<int>& given, int unit, Phase phase);

}  // namespace heddle
