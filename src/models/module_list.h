#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ops/emitter.h"

namespace heddle {

/// The module and the weight of a head that is not tied; of a tied one too, Hugging Face's module is called so.
inline constexpr std::string_view kHeadModule = "lm_head", kHeadWeight = "lm_head.weight";

/// "model.norm" of "model.norm.weight".
inline std::string module_of(const std::string& weight) { return weight.substr(0, weight.rfind('.')); }

/// The modules and the weights of a model: what emit_model() asks an Emitter for.
class ModuleList final : public Emitter {
 public:
  std::vector<std::string> linear;  ///< layers of the blocks, by module name ("model.layers.0.self_attn.q_proj")
  std::vector<std::string> weights;
  std::string embedding;       ///< the weight with a row for each id
  std::string head;            ///< the weight of the logits; of a tied model the embedding's
  bool is_transposed = false;  ///< linear layers lie as [inputs, outputs]

  bool is_tied() const { return head == embedding; }

  Value weight(const std::string& name, Shape shape, Initialization initialization) override;
  std::vector<Value> emit(std::string_view operation, std::vector<Value> inputs, Attributes attributes) override;
  const ValueType& type(Value value) const override { return types_[static_cast<std::size_t>(value.id)]; }
  void begin_unit(std::string) override {}
  Value input_ids() override { return ids_ = add({DType::i32, {1}, 0}); }
  Value positions() override { return add({DType::i32, {1}, 0}); }
  Value document_starts() override { return add({DType::i32, {2}}); }
  Value attention(Value q, Value k, Value v, Attributes attributes) override;
  std::vector<Value> rope_table(Attributes attributes) override;
  void emit_head(Value x, Value weight, const HeadAdapter& adapter, Attributes attributes) override;
  Value reshape(Value x, Shape shape) override;

 private:
  Value add(ValueType type);

  Value ids_;
  std::vector<ValueType> types_;
  std::vector<std::string> names_;  // of weights by value; empty for others
};

}  // namespace heddle
