#include <unordered_set>

#include "base/error.h"
#include "program/passes/passes.h"

namespace heddle {

void accumulate(StepProgram& program, bool one_micro_batch) {
  std::unordered_set<int> written;
  for (auto& instruction : program.instructions) {
    int gradients = 0, first_writes = 0;
    for (const int output : instruction.outputs) {
      if (output < 0 || program.at(output).buffer_class != BufferClass::gradients) continue;
      ++gradients;
      if (written.insert(program.root(output)).second) ++first_writes;
    }
    if (gradients == 0) continue;
    // One attribute serves all outputs of an instruction: a weight and its bias are always shared together.
    HEDDLE_CHECK(first_writes == 0 || first_writes == gradients);
    const auto first = one_micro_batch ? Accumulate::overwrite : Accumulate::add_after_first;
    const auto mode = first_writes > 0 ? first : Accumulate::add;
    instruction.attributes.set("accumulate", static_cast<std::int64_t>(mode));
  }
}

}  // namespace heddle
