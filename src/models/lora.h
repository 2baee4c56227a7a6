#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "formats/peft_config.h"
#include "models/module_list.h"

/// Low-rank adapters beside a model's linear layers, by PEFT's rules and names.
namespace heddle {

/// What PEFT puts before the model's names.
inline constexpr std::string_view kAdapterPrefix = "base_model.model.";
/// Whether a weight belongs to an adapter rather than to the base model.
inline bool is_adapter_weight(std::string_view name) { return name.starts_with(kAdapterPrefix); }
/// How PEFT calls what holds the rows of trainable_token_indices, behind the module's name.
inline constexpr std::string_view kTokenRows = ".token_adapter.trainable_tokens_delta";

/// The modules of a model that an adapter changes.
class LoraModules {
 public:
  /// Throws Error for a target or a module to save that the model does not have, naming the nearest; `where` is what
  /// the config came from.
  LoraModules(LoraConfig config, const std::string& model_type, const ModuleList& model, const std::string& where);

  const LoraConfig& config() const { return config_; }
  bool has_adapter(const std::string& module) const { return targets_.contains(module); }
  std::int64_t rank_of(const std::string& module) const;
  double scaling_of(const std::string& module) const;
  /// Whether the outputs of a module with an adapter are the columns of its weight.
  bool is_transposed(const std::string& module) const;
  /// The weight with a row for each id.
  const std::string& embedding() const { return embedding_; }
  /// Whether the head has a weight of its own though the base ties it to the embedding: as PEFT, one of the two is
  /// saved and thus a copy, unless ensure_weight_tying says that both are one.
  bool unties_head() const { return unties_head_; }
  /// The embedding's weight where it is trained as one with the head: PEFT saves it under both names. Else empty.
  const std::string& tied_weight() const { return tied_weight_; }
  /// Rows of the embedding or of the head that are trained (trainable_token_indices).
  struct TokenRows {
    std::string weight;  ///< what holds them; one for both where they are tied
    std::vector<std::int64_t> ids;
  };
  /// Null for a module without such rows.
  const TokenRows* token_rows(const std::string& module) const;
  /// The greatest id that has one; -1: none.
  std::int64_t greatest_token_row() const;
  /// Whether the adapter has a part with a row for each id.
  bool has_vocabulary() const { return has_vocabulary_; }
  /// Whether what is added to the embedding is not added to the head that is tied to it, or the other way round:
  /// merged, they would be two.
  bool splits_tied() const { return splits_tied_; }
  /// Whether a weight of the base model is trained: a bias, or of a module to save.
  bool trains(const std::string& weight) const;
  /// The name in adapter_model.safetensors of a trained weight.
  std::string saved_name(const std::string& weight) const;

 private:
  void add_targets(const ModuleList& model, const std::string& where);
  void add_saved(const ModuleList& model, const std::string& where);
  void add_token_rows(const ModuleList& model, const std::string& where);

  LoraConfig config_;
  std::set<std::string> targets_, saved_;        // module names
  std::map<std::string, TokenRows> token_rows_;  // by module
  std::string embedding_, tied_weight_;
  bool unties_head_ = false, splits_tied_ = false, has_vocabulary_ = false;
};

/// Emits a model with its adapter: each linear layer, embedding and head that is a target gets its low-rank branch, and
/// everything else passes through to `inner`. Values are inner's.
class LoraEmitter final : public Emitter {
 public:
  /// Dropout only where `trains`.
  LoraEmitter(Emitter& inner, const LoraModules& modules, bool trains)
      : inner_(inner), modules_(modules), trains_(trains) {}

  Value weight(const std::string& name, Shape shape, Initialization initialization) override;
  std::vector<Value> emit(std::string_view operation, std::vector<Value> inputs, Attributes attributes) override;
  const ValueType& type(Value value) const override { return inner_.type(value); }
  void begin_unit(std::string name) override { inner_.begin_unit(std::move(name)); }
  void set_in_mlp(bool is_inside) override { inner_.set_in_mlp(is_inside); }
  Value input_ids() override { return inner_.input_ids(); }
  Value positions() override { return inner_.positions(); }
  Value document_starts() override { return inner_.document_starts(); }
  Value attention(Value q, Value k, Value v, Attributes attributes) override {
    return inner_.attention(q, k, v, std::move(attributes));
  }
  std::vector<Value> rope_table(Attributes attributes) override { return inner_.rope_table(std::move(attributes)); }
  void emit_head(Value x, Value weight, const HeadAdapter& adapter, Attributes attributes) override;
  Value reshape(Value x, Shape shape) override { return inner_.reshape(x, shape); }

 private:
  /// x [T, inputs], weight [outputs, inputs] (or the other way round where `transposed`).
  struct Layer {
    std::string module;
    Value x, weight, bias;
    Attributes attributes;
    std::int64_t inputs, outputs;
  };
  Value with_adapter(const Layer& layer);
  Value with_dora(const Layer& layer, Value a, Value b, Value dropped);
  Value embed_with_adapter(const std::string& module, const std::vector<Value>& inputs, const Attributes& attributes);
  /// The module's own rows, whose ids go to the attributes; absent where it has none.
  Value token_rows(const std::string& module, const Shape& table, Attributes& attributes);

  Emitter& inner_;
  const LoraModules& modules_;
  const bool trains_;
  std::vector<std::string> names_;  // of weights by value; empty for others
};

}  // namespace heddle
