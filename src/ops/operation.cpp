#include "ops/operation.h"

#include "ops/declarations.h"

namespace heddle {
namespace {

struct Table {
  std::vector<Operation> operations;
  std::vector<const Operation*> pointers;
};

const Table& table() {
  static const Table made = [] {
    Table t;
    for (auto* declare : {embedding_operations, linear_operations, norm_operations, rope_operations,
                          attention_operations, activation_operations, elementwise_operations, cross_entropy_operations,
                          preference_operations, dora_operations, optimizer_operations, movement_operations}) {
      for (auto& operation : declare()) t.operations.push_back(std::move(operation));
    }
    for (const auto& operation : t.operations) t.pointers.push_back(&operation);
    return t;
  }();
  return made;
}

}  // namespace

const Operation& find_operation(std::string_view name) {
  for (const auto& operation : table().operations) {
    if (operation.name == name) return operation;
  }
  fail("no operation is named {}", name);
}

std::span<const Operation* const> all_operations() { return table().pointers; }

void BackwardContext::add_gradient(int index, Value more) {
  const Value before = gradient(index);
  set_gradient(index, before.present() ? emit("add", {before, more}, {})[0] : more);
}

double detail::no_flops(std::span<const ValueType>, std::span<const ValueType>, const Attributes&) { return 0.0; }

}  // namespace heddle
