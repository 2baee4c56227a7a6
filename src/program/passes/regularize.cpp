#include <algorithm>

#include "base/error.h"
#include "program/passes/passes.h"

namespace heddle {
namespace {

/// Of the noise among the random streams of a run; dropout counts its own from 1 on.
constexpr std::int64_t kNoiseStream = (std::int64_t{1} << 24) - 1;

/// Noise on what the ids of the stream embed to, and on nothing else that is embedded (GPT-2's positions).
void add_noise(StepProgram& program, double alpha) {
  const int ids = program.find_persistent(labels::input_ids);
  const int starts = program.find_persistent(labels::document_starts);
  auto& list = program.instructions;
  const auto embeds_ids = [&](const Instruction& i) { return i.operation->name == "embedding" && i.inputs[0] == ids; };
  const auto found = std::find_if(list.begin(), list.end(), embeds_ids);
  HEDDLE_CHECK(found != list.end());
  const auto position = found - list.begin();
  const int plain = found->outputs[0];
  const int noisy =
      append_instruction(program, find_operation("neftune"), {plain, starts},
                         {{"alpha", alpha}, {"stream", kNoiseStream}}, {}, found->unit, Phase::forward)[0];
  std::rotate(list.begin() + position + 1, list.end() - 1, list.end());
  for (Buffer& buffer : program.buffers) {
    if (buffer.view_of == plain) buffer.view_of = noisy;
  }
  for (auto instruction = list.begin() + position + 2; instruction != list.end(); ++instruction)
    std::replace(instruction->inputs.begin(), instruction->inputs.end(), plain, noisy);
}

}  // namespace

void regularize(StepProgram& program, const Regularization& regularization) {
  if (regularization.neftune_noise_alpha != 0.0) add_noise(program, regularization.neftune_noise_alpha);
  for (auto& instruction : program.instructions) {
    if (instruction.operation->name != "linear_cross_entropy") continue;
    if (regularization.label_smoothing != 0.0)
      instruction.attributes.set("label_smoothing", regularization.label_smoothing);
    if (regularization.z_loss != 0.0) instruction.attributes.set("z_loss", regularization.z_loss);
  }
}

}  // namespace heddle
