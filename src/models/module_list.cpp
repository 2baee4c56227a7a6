#include "models/module_list.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace heddle {

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
    HEDDLE_CHECK(!name.empty());
    linear.push_back(module_of(name));
    is_transposed = attributes.integer("transposed") != 0;
  }
  // The first look-up: an adapter's own comes behind it.
  if (operation == "embedding" && inputs[0] == ids_ && embedding.empty())
    embedding = names_[static_cast<std::size_t>(inputs[1].id)];
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

void ModuleList::emit_head(Value, Value weight, const HeadAdapter&, Attributes) {
  head = names_[static_cast<std::size_t>(weight.id)];
}

Value ModuleList::reshape(Value x, Shape shape) {
  ValueType type = types_[static_cast<std::size_t>(x.id)];
  type.shape = shape;
  return add(type);
}

}  // namespace heddle
