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

}  // namespace heddle
