#pragma once

#include "base/error.h"
#include "ops/operation.h"

/// The operations that each file of this folder declares; gathered by operation.cpp.
namespace heddle {

std::vector<Operation> embedding_operations();
std::vector<Operation> linear_operations();
std::vector<Operation> norm_operations();
std::vector<Operation> rope_operations();
std::vector<Operation> attention_operations();
std::vector<Operation> activation_operations();
std::vector<Operation> elementwise_operations();
std::vector<Operation> cross_entropy_operations();
std::vector<Operation> preference_operations();
std::vector<Operation> dora_operations();
std::vector<Operation> optimizer_operations();
std::vector<Operation> movement_operations();

namespace detail {
/// What holds the logits of `chunk` tokens: a column for each row of the head's weight, and one for each row that an
/// adapter puts in place of another (row_ids), and dx in f32 beside these; twice as many rows with DoRA's magnitudes,
/// input `magnitude`.
ValueType logits_workspace(std::span<const ValueType> in, std::size_t magnitude, const Attributes& attributes);
}  // namespace detail

}  // namespace heddle
