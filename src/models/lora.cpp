#include "models/lora.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <regex>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace heddle {
namespace {

constexpr std::string_view kWeight = ".weight";

/// What PEFT adapts where nobody says: TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING.
std::vector<std::string> usual_targets(const std::string& model_type) {
  if (model_type == "gpt2") return {"c_attn"};
  constexpr std::array<std::string_view, 8> kQueryAndValue = {"llama",       "mistral", "gemma", "gemma2",
                                                              "gemma3_text", "qwen2",   "qwen3", "smollm3"};
  if (std::find(kQueryAndValue.begin(), kQueryAndValue.end(), model_type) != kQueryAndValue.end())
    return {"q_proj", "v_proj"};
  return {};
}

bool is_name_or_end(const std::string& module, std::string_view name) {
  return module == name ||
         (module.size() > name.size() && module.ends_with(name) && module[module.size() - name.size() - 1] == '.');
}

bool is_any_module(const std::vector<std::string>& modules, std::string_view name) {
  return std::any_of(modules.begin(), modules.end(), [&](const auto& module) { return is_name_or_end(module, name); });
}

bool is_any_of(const std::string& module, const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(), [&](const auto& name) { return is_name_or_end(module, name); });
}

/// "layers.3" in "model.layers.3.mlp.up_proj" gives 3; -1 where no index follows one of the patterns.
std::int64_t layer_of(const std::string& module, const std::vector<std::string>& patterns) {
  std::size_t begin = 0;
  std::string before;
  while (begin < module.size()) {
    const std::size_t dot = std::min(module.find('.', begin), module.size());
    const std::string part = module.substr(begin, dot - begin);
    const bool is_index =
        !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == std::string::npos;
    if (is_index && (patterns.empty() || std::find(patterns.begin(), patterns.end(), before) != patterns.end()))
      return std::stoll(part);
    before = part;
    begin = dot + 1;
  }
  return -1;
}

std::regex compiled(const std::string& pattern, const std::string& where) {
  try {
    return std::regex(pattern, std::regex::ECMAScript);
  } catch (const std::regex_error& error) {
    fail("{}: target_modules: {} is no regular expression: {}", where, text_excerpt(pattern), error.what());
  }
}

/// The name of a module as people write it: its last part.
std::string last_part(const std::string& module) { return module.substr(module.rfind('.') + 1); }

std::string nearest_module(const std::string& name, const std::vector<std::string>& modules) {
  std::set<std::string> parts;
  for (const auto& module : modules) parts.insert(last_part(module));
  const std::vector<std::string_view> candidates(parts.begin(), parts.end());
  return did_you_mean(name, candidates);
}

/// The value of the longest key that names the module.
template <typename Value>
Value pattern_value(const std::map<std::string, Value>& pattern, const std::string& module, Value otherwise) {
  std::size_t longest = 0;
  for (const auto& [name, value] : pattern) {
    if (!is_name_or_end(module, name) || name.size() < longest) continue;
    longest = name.size();
    otherwise = value;
  }
  return otherwise;
}

}  // namespace

LoraModules::LoraModules(LoraConfig config, const std::string& model_type, const ModuleList& model,
                         const std::string& where)
    : config_(std::move(config)), embedding_(model.embedding) {
  if (config_.target_modules.empty() && config_.target_pattern.empty()) {
    config_.target_modules = usual_targets(model_type);
    if (config_.target_modules.empty()) {
      fail("{}: target_modules is missing; a {} model has no usual ones (its linear layers: {}, ...)", where,
           model_type, model.linear.empty() ? "none" : last_part(model.linear[0]));
    }
  }
  add_targets(model, where);
  add_saved(model, where);
  add_token_rows(model, where);
}

void LoraModules::add_targets(const ModuleList& model, const std::string& where) {
  const bool is_all = config_.target_pattern == "all-linear";
  const std::regex pattern = compiled(is_all ? "" : config_.target_pattern, where);
  const std::string embedding = module_of(model.embedding), head(kHeadModule);
  std::vector<std::string> candidates = model.linear;
  if (!is_all) candidates.insert(candidates.end(), {embedding, head});
  for (const auto& module : candidates) {
    const bool is_named = is_all || (config_.target_pattern.empty() ? is_any_of(module, config_.target_modules)
                                                                    : std::regex_match(module, pattern));
    if (!is_named || is_any_of(module, config_.exclude_modules)) continue;
    const auto& layers = config_.layers_to_transform;
    if (!layers.empty() &&
        std::find(layers.begin(), layers.end(), layer_of(module, config_.layers_pattern)) == layers.end())
      continue;
    targets_.insert(module);
  }
  for (const auto& name : config_.target_modules) {
    if (is_any_module(candidates, name)) continue;
    const bool is_other = std::any_of(model.weights.begin(), model.weights.end(),
                                      [&](const auto& weight) { return is_name_or_end(module_of(weight), name); });
    fail("{}: target_modules: {} {}{}", where, name,
         is_other ? "is no linear layer and no embedding; modules_to_save trains such a module whole"
                  : "names no module of the model",
         is_other ? "" : nearest_module(name, candidates));
  }
  if (targets_.empty()) fail("{}: target_modules: no layer of the model is a target", where);
  const bool has_table = targets_.contains(embedding) || targets_.contains(head);
  if (targets_.contains(head) && config_.use_dora && config_.lora_dropout > 0)
    fail("{}: use_dora is true and target_modules names the head; this version has no lora_dropout there", where);
  if (has_table && config_.ensure_weight_tying)
    fail("{}: ensure_weight_tying is true; this version ties modules_to_save alone, not adapters", where);
  splits_tied_ = has_table && model.is_tied();
  has_vocabulary_ = has_table;
}

void LoraModules::add_saved(const ModuleList& model, const std::string& where) {
  std::vector<std::string> modules = {std::string(kHeadModule)};
  modules.reserve(model.weights.size() + 1);
  for (const auto& weight : model.weights) modules.push_back(module_of(weight));
  for (const auto& name : config_.modules_to_save) {
    if (!is_any_module(modules, name))
      fail("{}: modules_to_save: {} names no module of the model{}", where, name, nearest_module(name, modules));
    for (const auto& module : modules) {
      if (is_name_or_end(module, name)) saved_.insert(module);
    }
  }
  const std::string embedding = module_of(model.embedding), head(kHeadModule);
  has_vocabulary_ = has_vocabulary_ || saved_.contains(embedding) || saved_.contains(head);
  if (!model.is_tied() || (!saved_.contains(embedding) && !saved_.contains(head))) return;
  unties_head_ = !config_.ensure_weight_tying;
  if (!config_.ensure_weight_tying) return;
  saved_.insert(embedding);
  tied_weight_ = model.embedding;
}

// As PEFT: of a tied model the head takes the embedding's rows, unless both are named and differ, or the head alone is.
void LoraModules::add_token_rows(const ModuleList& model, const std::string& where) {
  const std::string embedding = module_of(model.embedding), head(kHeadModule);
  for (const auto& [name, ids] : config_.trainable_token_indices) {
    const std::string module = name.empty() || is_name_or_end(embedding, name) ? embedding : head;
    if (module == head && !is_name_or_end(head, name)) {
      fail("{}: trainable_token_indices: {} is neither the embedding ({}) nor the head ({})", where, name, embedding,
           head);
    }
    if (targets_.contains(module) || saved_.contains(module)) {
      fail("{}: trainable_token_indices: {} is among {} too", where, module,
           targets_.contains(module) ? "target_modules" : "modules_to_save");
    }
    if (ids.empty() || std::set<std::int64_t>(ids.begin(), ids.end()).size() != ids.size())
      fail("{}: trainable_token_indices: expected ids of {}, each once", where, module);
    token_rows_[module] = {std::string(kAdapterPrefix) + module + std::string(kTokenRows), ids};
  }
  if (token_rows_.empty()) return;
  if (!model.is_tied()) return;
  if (unties_head_ || splits_tied_ || !tied_weight_.empty()) {
    fail("{}: trainable_token_indices: the head is tied to the embedding, and one of them is among {} too", where,
         splits_tied_ ? "target_modules" : "modules_to_save");
  }
  const auto of_embedding = token_rows_.find(embedding), of_head = token_rows_.find(head);
  const bool are_one = of_embedding != token_rows_.end() &&
                       (of_head == token_rows_.end() || of_head->second.ids == of_embedding->second.ids);
  if (are_one) {
    token_rows_[head] = of_embedding->second;
  } else if (config_.ensure_weight_tying && of_embedding != token_rows_.end()) {
    fail("{}: ensure_weight_tying is true; expected the same trainable_token_indices of {} and {}", where, embedding,
         head);
  }
  splits_tied_ = !are_one;
}

const LoraModules::TokenRows* LoraModules::token_rows(const std::string& module) const {
  const auto found = token_rows_.find(module);
  return found == token_rows_.end() ? nullptr : &found->second;
}

std::int64_t LoraModules::greatest_token_row() const {
  std::int64_t greatest = -1;
  for (const auto& [module, rows] : token_rows_)
    greatest = std::max(greatest, *std::max_element(rows.ids.begin(), rows.ids.end()));
  return greatest;
}

std::int64_t LoraModules::rank_of(const std::string& module) const {
  return pattern_value(config_.rank_pattern, module, config_.r);
}

double LoraModules::scaling_of(const std::string& module) const {
  const double alpha = pattern_value(config_.alpha_pattern, module, config_.lora_alpha);
  const auto rank = static_cast<double>(rank_of(module));
  return alpha / (config_.use_rslora ? std::sqrt(rank) : rank);
}

bool LoraModules::is_transposed(const std::string& module) const {
  return module == module_of(embedding_) || (config_.fan_in_fan_out && module != kHeadModule);
}

bool LoraModules::trains(const std::string& weight) const {
  if (is_adapter_weight(weight) || saved_.contains(module_of(weight))) return true;
  if (!weight.ends_with(".bias")) return false;
  return config_.bias == "all" || (config_.bias == "lora_only" && targets_.contains(module_of(weight)));
}

std::string LoraModules::saved_name(const std::string& weight) const {
  if (is_adapter_weight(weight)) return weight;
  const std::string module = module_of(weight);
  // The base's own layer stands one level deeper in a module with an adapter.
  const std::string name = targets_.contains(module) ? module + ".base_layer" + weight.substr(module.size()) : weight;
  return std::string(kAdapterPrefix) + name;
}

Value LoraEmitter::weight(const std::string& name, Shape shape, Initialization initialization) {
  const Value value = inner_.weight(name, shape, initialization);
  names_.resize(std::max(names_.size(), static_cast<std::size_t>(value.id) + 1));
  names_[static_cast<std::size_t>(value.id)] = name;
  return value;
}

std::vector<Value> LoraEmitter::emit(std::string_view operation, std::vector<Value> inputs, Attributes attributes) {
  if (operation == "linear") {
    const std::string& name = names_.at(static_cast<std::size_t>(inputs[1].id));
    HEDDLE_CHECK(name.ends_with(kWeight));
    Layer layer{name.substr(0, name.size() - kWeight.size()), inputs[0], inputs[1], {}, attributes, 0, 0};
    if (modules_.has_adapter(layer.module)) {
      if (inputs.size() > 2) layer.bias = inputs[2];
      const Shape& shape = type(inputs[1]).shape;
      const int outputs = attributes.integer("transposed") != 0 ? 1 : 0;
      layer.outputs = shape[outputs];
      layer.inputs = shape[1 - outputs];
      return {with_adapter(layer)};
    }
  }
  if (operation == "embedding") {
    const std::string module = module_of(names_.at(static_cast<std::size_t>(inputs[1].id)));
    if (modules_.has_adapter(module)) return {embed_with_adapter(module, inputs, attributes)};
    const Value rows = token_rows(module, type(inputs[1]).shape, attributes);
    if (rows.present()) inputs.push_back(rows);
  }
  return inner_.emit(operation, std::move(inputs), std::move(attributes));
}

// y = W[id] + scaling * A[:,id]ᵀ·Bᵀ, A [r, V] zeros and B [H, r] normal, as PEFT has it; no dropout. DoRA's magnitudes
// and norms are of its columns: y * m / |W + scaling * (B·A)ᵀ|.
Value LoraEmitter::embed_with_adapter(const std::string& module, const std::vector<Value>& inputs,
                                      const Attributes& attributes) {
  const std::string prefix = std::string(kAdapterPrefix) + module + ".";
  const std::int64_t rank = modules_.rank_of(module);
  const Shape table = type(inputs[1]).shape;
  const Value a = inner_.weight(prefix + "lora_embedding_A", {rank, table[0]}, Initialization::zeros());
  const Value b = inner_.weight(prefix + "lora_embedding_B", {table[1], rank}, Initialization::normal(1.0));
  const Value y = inner_.emit("embedding", inputs, attributes)[0];  // [T, H]
  Attributes columns = attributes;
  columns.set("transposed", std::int64_t{1});
  const Value low = inner_.emit("embedding", {inputs[0], a}, std::move(columns))[0];  // [T, r]
  const double scaling = modules_.scaling_of(module);
  const Value sum = inner_.add(y, inner_.linear(inner_.scale(low, scaling), b));
  if (!modules_.config().use_dora) return sum;
  const Value magnitude = inner_.weight(prefix + "lora_magnitude_vector", {table[1]}, Initialization::ones());
  const Attributes of_columns = {{"scaling", scaling}, {"transposed", std::int64_t{1}}};
  const Value norms = inner_.emit("dora_norm", {inputs[1], a, b}, of_columns)[0];  // [H]
  return inner_.emit("dora_scale", {sum, magnitude, norms, Value{}}, {})[0];
}

Value LoraEmitter::token_rows(const std::string& module, const Shape& table, Attributes& attributes) {
  const LoraModules::TokenRows* rows = modules_.token_rows(module);
  if (rows == nullptr) return {};
  std::map<std::int64_t, std::size_t> place_of;
  for (const std::int64_t id : rows->ids) {
    if (id < 0 || id >= table[0])
      fail("trainable_token_indices: {} is no id of the model, whose vocabulary has {}", id, table[0]);
    place_of.emplace(id, place_of.size());
  }
  std::vector<double> ids, places;
  for (const auto& [id, place] : place_of) {
    ids.push_back(static_cast<double>(id));
    places.push_back(static_cast<double>(place));
  }
  attributes.set("row_ids", std::move(ids));
  attributes.set("row_places", std::move(places));
  // What they start as is the base's (RunWeights).
  return inner_.weight(rows->weight, {static_cast<std::int64_t>(rows->ids.size()), table[1]}, Initialization::zeros());
}

// logits = x·Wᵀ + scaling * (dropout(x)·Aᵀ)·Bᵀ; the second product is made with the first (HeadAdapter). With DoRA they
// are multiplied by m / |W + scaling·B·A|, as those of a layer.
void LoraEmitter::emit_head(Value x, Value weight, const HeadAdapter& adapter, Attributes attributes) {
  const Shape table = type(weight).shape;  // [V, H]
  const std::string module(kHeadModule);
  if (modules_.unties_head()) weight = inner_.weight(std::string(kHeadWeight), table, Initialization::normal(0.02));
  HeadAdapter added = adapter;
  if (modules_.has_adapter(module)) {
    const std::string prefix = std::string(kAdapterPrefix) + module + ".";
    const std::int64_t rank = modules_.rank_of(module);
    const double bound = 1.0 / std::sqrt(static_cast<double>(table[1]));
    const Value a = inner_.weight(prefix + "lora_A.weight", {rank, table[1]}, Initialization::uniform(bound));
    added.weight = inner_.weight(prefix + "lora_B.weight", {table[0], rank}, Initialization::zeros());
    const Value dropped = inner_.dropout(x, trains_ ? modules_.config().lora_dropout : 0.0);
    const double scaling = modules_.scaling_of(module);
    added.x = inner_.scale(inner_.linear(dropped, a), scaling);  // [T, r]
    if (modules_.config().use_dora) {
      added.magnitude = inner_.weight(prefix + "lora_magnitude_vector", {table[0]}, Initialization::ones());
      added.norms = inner_.emit("dora_norm", {weight, a, added.weight}, {{"scaling", scaling}})[0];  // [V]
    }
  }
  added.rows = token_rows(module, table, attributes);
  inner_.emit_head(x, weight, added, std::move(attributes));
}

// y = x·Wᵀ + bias + scaling * (dropout(x)·Aᵀ)·Bᵀ. The two small products cost little beside the first, and the second
// adds where it stores (fuse).
Value LoraEmitter::with_adapter(const Layer& layer) {
  const std::string prefix = std::string(kAdapterPrefix) + layer.module + ".";
  const std::int64_t rank = modules_.rank_of(layer.module);
  // PEFT: kaiming_uniform_(a = sqrt(5)) for A, so that |A| <= 1/sqrt(inputs); zeros for B.
  const double bound = 1.0 / std::sqrt(static_cast<double>(layer.inputs));
  const Value a = inner_.weight(prefix + "lora_A.weight", {rank, layer.inputs}, Initialization::uniform(bound));
  const Value b = inner_.weight(prefix + "lora_B.weight", {layer.outputs, rank}, Initialization::zeros());
  const double dropout = trains_ ? modules_.config().lora_dropout : 0.0;
  const Value dropped = inner_.dropout(layer.x, dropout);
  if (modules_.config().use_dora) return with_dora(layer, a, b, dropped);
  const Value y = inner_.emit("linear", {layer.x, layer.weight, layer.bias}, layer.attributes)[0];  // [T, outputs]
  const Value low = inner_.scale(inner_.linear(dropped, a), modules_.scaling_of(layer.module));     // [T, r]
  return inner_.add(y, inner_.linear(low, b));
}

// y = m / |W + scaling·B·A| * (x·Wᵀ + scaling * (x·Aᵀ)·Bᵀ) + bias, norms by row and without a gradient of their own
// (section 4.3). With dropout, as PEFT: only the part of W that m / |.| adds to x·Wᵀ sees the dropped x.
Value LoraEmitter::with_dora(const Layer& layer, Value a, Value b, Value dropped) {
  const double scaling = modules_.scaling_of(layer.module);
  const std::string name = std::string(kAdapterPrefix) + layer.module + ".lora_magnitude_vector";
  const Value magnitude = inner_.weight(name, {layer.outputs}, Initialization::ones());
  Attributes attributes = layer.attributes;
  attributes.set("scaling", scaling);
  const Value norms = inner_.emit("dora_norm", {layer.weight, a, b}, std::move(attributes))[0];     // [outputs]
  const Value base = inner_.emit("linear", {dropped, layer.weight, Value{}}, layer.attributes)[0];  // [T, outputs]
  const Value low = inner_.scale(inner_.linear(dropped, a), scaling);                               // [T, r]
  const Value sum = inner_.add(base, inner_.linear(low, b));                                        // [T, outputs]
  if (dropped == layer.x) return inner_.emit("dora_scale", {sum, magnitude, norms, layer.bias}, {})[0];
  const Value scaled = inner_.emit("dora_scale", {sum, magnitude, norms, Value{}}, {})[0];
  const Value whole = inner_.emit("linear", {layer.x, layer.weight, layer.bias}, layer.attributes)[0];
  return inner_.add(inner_.add(whole, inner_.scale(base, -1.0)), scaled);
}

}  // namespace heddle
