#include "ops/declarations.h"

// all_gather, reduce_scatter: what ranks exchange; one call for the tensors of a unit, so that small ones share a
// message. transfer: between tiers. wait: for any of them.
namespace heddle {
namespace {

std::vector<ValueType> infer_given(std::span<const ValueType>, const Attributes&) { return {}; }

Operation movement(std::string_view name) {
  return {.name = name, .infer = infer_given, .flops = detail::no_flops, .moves_data = true};
}

}  // namespace

std::vector<Operation> movement_operations() {
  return {movement("all_gather"), movement("reduce_scatter"), movement("transfer"), movement("wait")};
}

}  // namespace heddle
