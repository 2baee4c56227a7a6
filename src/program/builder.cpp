#include "program/builder.h"

#include <algorithm>

#include "base/error.h"

namespace heddle {
namespace {

// Rows of logits at a time: at most 64 MiB in f32, so that packing the vocabulary's weights is paid for by enough rows
// while the workspace stays small beside the weights it serves.
std::int64_t cross_entropy_chunk(std::int64_t tokens, std::int64_t vocabulary) {
  constexpr std::int64_t kElements = std::int64_t{16} << 20;
  const std::int64_t most = std::clamp<std::int64_t>(kElements / vocabulary, 64, 1024);
  const std::int64_t chunks = std::max<std::int64_t>(1, (tokens + most - 1) / most);
  return (tokens + chunks - 1) / chunks;  // even ones: a short last one would pay for packing all the same
}

/// The operands of a head, and behind them those of its adapter.
std::vector<Value> with_adapter(std::vector<Value> operands, const HeadAdapter& adapter) {
  if (adapter.present()) operands.insert(operands.end(), {adapter.x, adapter.weight});
  if (adapter.rows.present() || adapter.magnitude.present()) operands.push_back(adapter.rows);
  if (adapter.magnitude.present()) operands.insert(operands.end(), {adapter.magnitude, adapter.norms});
  return operands;
}

ParameterPlace place_of(std::string_view unit) {
  if (unit == "embedding") return ParameterPlace::embedding;
  return unit == "head" ? ParameterPlace::head : ParameterPlace::block;
}

}  // namespace

Parameter& Parameters::add_or_get(const std::string& name, const Shape& shape, Initialization initialization,
                                  int unit) {
  const auto [found, is_new] = index_.try_emplace(name, list.size());
  if (is_new) {
    list.push_back({.name = name, .shape = shape, .initialization = initialization, .unit = unit});
  }
  auto& parameter = list[found->second];
  HEDDLE_CHECK(parameter.shape == shape);
  return parameter;
}

const Parameter* Parameters::find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &list[found->second];
}

std::int64_t Parameters::count() const {
  std::int64_t total = 0;
  for (const auto& parameter : list) total += parameter.shape.elements();
  return total;
}

std::int64_t Parameters::trainable_count() const {
  std::int64_t total = 0;
  for (const auto& parameter : list) total += parameter.is_trainable ? parameter.shape.elements() : 0;
  return total;
}

std::vector<int> append_instruction(StepProgram& program, const Operation& operation, std::vector<int> inputs,
                                    Attributes attributes, const std::vector<int>& given, int unit, Phase phase) {
  inputs.resize(std::max(inputs.size(), operation.inputs), -1);
  std::vector<ValueType> types;
  bool needs_gradient = false;
  types.reserve(inputs.size());
  for (const int input : inputs) {
    types.push_back(input < 0 ? ValueType{} : program.at(input).type);
    needs_gradient = needs_gradient || (input >= 0 && program.at(input).needs_gradient);
  }
  const auto made = operation.infer(types, attributes);
  std::vector<int> outputs(std::max({made.size(), given.size(), operation.outputs}), -1);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (i < given.size() && given[i] >= 0) {
      outputs[i] = given[i];
    } else if (i < made.size() && made[i].present()) {
      outputs[i] =
          program.add({.label = std::string(operation.name) + (i == 0 ? "" : "." + std::to_string(i)),
                       .type = made[i],
                       .buffer_class = made[i].is_workspace ? BufferClass::workspace : BufferClass::activations,
                       .needs_gradient = needs_gradient && phase == Phase::forward && operation.backward != nullptr});
    }
  }
  program.instructions.push_back({.operation = &operation,
                                  .inputs = std::move(inputs),
                                  .outputs = outputs,
                                  .attributes = std::move(attributes),
                                  .phase = phase,
                                  .unit = unit});
  return outputs;
}

ProgramBuilder::ProgramBuilder(Options options, Parameters& parameters)
    : options_(std::move(options)), parameters_(&parameters) {
  program_.name = options_.name;
  const std::int64_t tokens = options_.token_capacity;
  ids_ = persistent(labels::input_ids, DType::i32, {tokens}, BufferClass::data, 0);
  positions_ = persistent(labels::positions, DType::i32, {tokens}, BufferClass::data, 0);
  document_starts_ =
      persistent(labels::document_starts, DType::i32, {options_.document_capacity + 1}, BufferClass::data);
  if (options_.purpose != Purpose::generation)
    labels_ = persistent(labels::labels, DType::i32, {tokens}, BufferClass::data, 0);
}

Value ProgramBuilder::persistent(std::string_view label, DType type, Shape shape, BufferClass buffer_class,
                                 int token_axis) {
  return {program_.add({.label = std::string(label),
                        .type = {type, shape, token_axis},
                        .buffer_class = buffer_class,
                        .is_persistent = true})};
}

Value ProgramBuilder::weight(const std::string& name, Shape shape, Initialization initialization) {
  const int unit = static_cast<int>(program_.units.size()) - 1;
  auto& parameter = parameters_->add_or_get(name, shape, initialization, unit);
  if (const auto found = weights_.find(name); found != weights_.end()) return {found->second};
  if (!program_.units.empty()) parameter.place = place_of(program_.units.back());
  if (options_.treatment) {
    const WeightTreatment treatment = options_.treatment(name);
    parameter.is_trainable = treatment.is_trainable;
    parameter.storage = treatment.storage;
    parameter.learning_rate_scale = treatment.learning_rate_scale;
    parameter.weight_decay = treatment.weight_decay;
  }
  Value value;
  if (parameter.is_quantized()) {
    // Bytes to all passes; kernels see the blocks.
    value = persistent(name, DType::u8, {parameter.held_elements()}, BufferClass::parameters);
    Buffer blocks = program_.at(value.id);
    blocks.type = {*parameter.storage, shape};
    blocks.view_of = value.id;
    value = {program_.add(std::move(blocks))};
  } else {
    value = persistent(name, parameter.storage.value_or(options_.activation_type), shape, BufferClass::parameters);
  }
  program_.at(value.id).needs_gradient = parameter.is_trainable;
  weights_.emplace(name, value.id);
  return value;
}

std::vector<Value> ProgramBuilder::emit(std::string_view operation, std::vector<Value> inputs, Attributes attributes) {
  // A quantized table does not say in which type its rows are wanted.
  if (operation == "embedding") attributes.set("dtype", static_cast<std::int64_t>(options_.activation_type));
  std::vector<int> ids;
  ids.reserve(inputs.size());
  for (const Value input : inputs) ids.push_back(input.id);
  const int unit = static_cast<int>(program_.units.size()) - 1;
  const auto outputs = append_instruction(program_, find_operation(operation), std::move(ids), std::move(attributes),
                                          {}, unit, Phase::forward);
  program_.instructions.back().in_mlp = is_in_mlp_ && program_.at(outputs[0]).type.token_axis == 0;
  std::vector<Value> values;
  values.reserve(outputs.size());
  for (const int id : outputs) values.push_back({id});
  return values;
}

void ProgramBuilder::begin_unit(std::string name) { program_.units.push_back(std::move(name)); }

Value ProgramBuilder::reshape(Value x, Shape shape) { return {program_.view(x.id, shape)}; }

Value ProgramBuilder::attention(Value q, Value k, Value v, Attributes attributes) {
  if (options_.purpose == Purpose::generation) {
    const auto& key = type(k);
    const Shape cache = {options_.cache_capacity, key.shape[1], key.shape[2]};
    const std::string layer = "key-value cache " + std::to_string(caches_++);
    const Value keys = persistent(layer + " keys", key.dtype, cache, BufferClass::activations);
    const Value values = persistent(layer + " values", key.dtype, cache, BufferClass::activations);
    const int unit = static_cast<int>(program_.units.size()) - 1;
    for (const auto& [from, to] : {std::pair{k, keys}, std::pair{v, values}}) {
      append_instruction(program_, find_operation("kv_append"), {from.id}, {}, {to.id}, unit, Phase::forward);
    }
    attributes.set("cached", std::int64_t{1});
    return emit("attention", {q, keys, values, document_starts_}, std::move(attributes))[0];
  }
  return emit("attention", {q, k, v, document_starts_}, std::move(attributes))[0];
}

std::vector<Value> ProgramBuilder::rope_table(Attributes attributes) {
  if (options_.purpose == Purpose::generation) attributes.set("cached", std::int64_t{1});
  return emit("rope_table", {positions_, document_starts_}, std::move(attributes));
}

std::vector<int> ProgramBuilder::append(std::string_view operation, const std::vector<Value>& inputs,
                                        Attributes attributes, const std::vector<Value>& outputs) {
  std::vector<int> in, out;
  for (const Value value : inputs) in.push_back(value.id);
  for (const Value value : outputs) out.push_back(value.id);
  const int unit = static_cast<int>(program_.units.size()) - 1;
  return append_instruction(program_, find_operation(operation), std::move(in), std::move(attributes), out, unit,
                            Phase::forward);
}

void ProgramBuilder::emit_head(Value x, Value weight, const HeadAdapter& adapter, Attributes attributes) {
  if (options_.purpose == Purpose::generation) return end_in_generation(x, weight, adapter, attributes);
  // With DoRA there are two matrices of logits, one before and one behind the magnitudes.
  const std::int64_t columns = type(weight).shape[0] * (adapter.magnitude.present() ? 2 : 1);
  attributes.set("chunk", cross_entropy_chunk(options_.token_capacity, columns));
  if (options_.purpose != Purpose::loss) return end_in_log_probs(x, weight, adapter, attributes);
  const Value loss = persistent(labels::loss, DType::f64, {1}, BufferClass::data);
  append("linear_cross_entropy", with_adapter({x, weight, labels_}, adapter), std::move(attributes), {loss});
}

void ProgramBuilder::end_in_generation(Value x, Value weight, const HeadAdapter& adapter,
                                       const Attributes& attributes) {
  const Value last = emit("select_last", {x}, {})[0];
  const auto make_logits = [&](std::string_view label, Value rows) {
    const Value logits = persistent(label, DType::f32, {1, type(rows).shape[0]}, BufferClass::activations);
    append("linear", {last, rows}, {{"transposed", std::int64_t{0}}}, {logits});
    return logits;
  };
  const Value logits = make_logits(labels::logits, weight);
  if (adapter.x.present()) {
    const Value low = emit("select_last", {adapter.x}, {})[0];
    append("linear", {low, adapter.weight, Value{}, logits}, {{"transposed", std::int64_t{0}}}, {logits});
  }
  if (adapter.magnitude.present()) append("dora_scale", {logits, adapter.magnitude, adapter.norms}, {}, {logits});
  if (adapter.rows.present())
    append("replace_columns", {make_logits("logits of replaced rows", adapter.rows)}, attributes, {logits});
  if (const double scale = attributes.real("logit_scale", 1.0); scale != 1.0)
    append("scale", {logits}, {{"factor", scale}}, {logits});
  if (const double cap = attributes.real("softcap"); cap != 0.0) append("softcap", {logits}, {{"cap", cap}}, {logits});
}

void ProgramBuilder::end_in_log_probs(Value x, Value weight, const HeadAdapter& adapter, const Attributes& attributes) {
  const Shape documents = {options_.document_capacity};
  const bool is_loss = options_.purpose == Purpose::preference_loss;
  Value log_probs;
  if (!is_loss) log_probs = persistent(labels::log_probs, DType::f64, documents, BufferClass::data);
  const auto inputs = with_adapter({x, weight, labels_, document_starts_}, adapter);
  log_probs = {append("linear_log_probs", inputs, attributes, {log_probs})[0]};
  if (!is_loss) return;
  const Value reference = persistent(labels::reference_log_probs, DType::f64, documents, BufferClass::data);
  const Value loss = persistent(labels::loss, DType::f64, {1}, BufferClass::data);
  constexpr auto kSums = static_cast<std::int64_t>(kPreferenceSums);
  const Value sums = persistent(labels::preference_sums, DType::f64, {kSums}, BufferClass::data);
  append("preference_loss", {log_probs, reference, labels_, document_starts_},
         {{"loss_type", static_cast<std::int64_t>(options_.preference.type)},
          {"beta", options_.preference.beta},
          {"label_smoothing", options_.preference.label_smoothing}},
         {loss, sums});
}

}  // namespace heddle
