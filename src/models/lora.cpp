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

std::string module_of(const std::string& weight) { return weight.substr(0, weight.rfind('.')); }

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

LoraModules::LoraModules(LoraConfig config, const std::string& model_type, const std::vector<std::string>& linear,
                         const std::vector<std::string>& weights, const std::string& where)
    : config_(std::move(config)) {
  if (config_.target_modules.empty() && config_.target_pattern.empty()) {
    config_.target_modules = usual_targets(model_type);
    if (config_.target_modules.empty()) {
      fail("{}: target_modules is missing; a {} model has no usual ones (its linear layers: {}, ...)", where,
           model_type, linear.empty() ? "none" : last_part(linear[0]));
    }
  }
  const bool is_all = config_.target_pattern == "all-linear";
  const std::regex pattern = compiled(is_all ? "" : config_.target_pattern, where);
  for (const auto& module : linear) {
    const bool is_named = is_all || (config_.target_pattern.empty() ? is_any_of(module, config_.target_modules)
                                                                    : std::regex_match(module, pattern));
    if (!is_named || is_any_of(module, config_.exclude_modules)) continue;
    const auto& layers = config_.layers_to_transform;
    if (!layers.empty() &&
        std::find(layers.begin(), layers.end(), layer_of(module, config_.layers_pattern)) == layers.end())
      continue;
    targets_.insert(module);
  }
  std::vector<std::string> modules;
  modules.reserve(weights.size());
  for (const auto& weight : weights) modules.push_back(module_of(weight));
  for (const auto& name : config_.target_modules) {
    if (std::any_of(linear.begin(), linear.end(), [&](const auto& module) { return is_name_or_end(module, name); }))
      continue;
    const bool is_other =
        std::any_of(modules.begin(), modules.end(), [&](const auto& module) { return is_name_or_end(module, name); });
    fail("{}: target_modules: {} {}{}", where, name,
         is_other ? "is no linear layer of the blocks; modules_to_save trains such a module whole"
                  : "names no module of the model",
         is_other ? "" : nearest_module(name, linear));
  }
  if (targets_.empty()) fail("{}: target_modules: no layer of the model is a target", where);
  for (const auto& name : config_.modules_to_save) {
    bool is_there = false;
    for (const auto& module : modules) {
      if (!is_name_or_end(module, name)) continue;
      saved_.insert(module);
      is_there = true;
    }
    if (!is_there)
      fail("{}: modules_to_save: {} names no module of the model{}", where, name, nearest_module(name, modules));
  }
}

std::int64_t LoraModules::rank_of(const std::string& module) const {
  return pattern_value(config_.rank_pattern, module, config_.r);
}

double LoraModules::scaling_of(const std::string& module) const {
  const double alpha = pattern_value(config_.alpha_pattern, module, config_.lora_alpha);
  const auto rank = static_cast<double>(rank_of(module));
  return alpha / (config_.use_rslora ? std::sqrt(rank) : rank);
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

Value ModuleList::add(ValueType type) {
  types_.push_back(type);
  names_.emplace_back();
  return {static_cast<int>(types_.size()) - 1};
}

Value ModuleList::weight(const std::string& name, Shape shape, Initialization) {
  if (std::find(weights.begin(), weights.end(), name) == weights.end()) weights.push_back(name);
  const Value value = add({DType::f32, shape});
  names_.back() = name;
  return value;
}

std::vector<Value> ModuleList::emit(std::string_view operation, std::vector<Value> inputs, Attributes attributes) {
  const Operation& made = find_operation(operation);
  inputs.resize(std::max(inputs.size(), made.inputs));
  std::vector<ValueType> in;
  in.reserve(inputs.size());
  for (const Value input : inputs) in.push_back(input.present() ? type(input) : ValueType{});
  if (operation == "linear") {
    const std::string& name = names_[static_cast<std::size_t>(inputs[1].id)];
    HEDDLE_CHECK(name.ends_with(kWeight));
    linear.push_back(name.substr(0, name.size() - kWeight.size()));
    is_transposed = attributes.integer("transposed") != 0;
  }
  std::vector<Value> values;
  for (const auto& out : made.infer(in, attributes)) values.push_back(add(out));
  return values;
}

Value ModuleList::attention(Value q, Value k, Value v, Attributes attributes) {
  return emit("attention", {q, k, v, document_starts()}, std::move(attributes))[0];
}

std::vector<Value> ModuleList::rope_table(Attributes attributes) {
  return emit("rope_table", {positions(), document_starts()}, std::move(attributes));
}

Value ModuleList::reshape(Value x, Shape shape) {
  ValueType type = types_[static_cast<std::size_t>(x.id)];
  type.shape = shape;
  return add(type);
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
  return inner_.emit(operation, std::move(inputs), std::move(attributes));
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
