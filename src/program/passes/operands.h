#pragma once

#include "program/program.h"

namespace heddle {

/// Calls function(id) for each operand that an instruction has: inputs, then outputs.
template <typename Function>
void for_each_operand(const Instruction& instruction, Function&& function) {
  for (const auto* operands : {&instruction.inputs, &instruction.outputs}) {
    for (const int operand : *operands) {
      if (operand >= 0) function(operand);
    }
  }
}

}  // namespace heddle
