// The programs of a run as a whole: what holds of the passes together.
#include "train/compile.h"

#include <gtest/gtest.h>

#include <vector>

#include "small_model.h"

namespace heddle {
namespace {

constexpr std::size_t kBlocks = 3;

/// Labels of what comes to memory in each transfer of the micro-batch's program, gradients left out.
std::vector<std::vector<std::string>> fetched(const RunConfig& run) {
  const CompiledRun compiled = compile_training(small_model(kBlocks), run, WeightRules(), {512, 1}, std::nullopt);
  const StepProgram& program = compiled.programs.at(static_cast<std::size_t>(compiled.micro_batch));
  std::vector<std::vector<std::string>> transfers;
  for (const auto& instruction : program.instructions) {
    if (instruction.operation->name != "transfer") continue;
    std::vector<std::string> labels;
    for (const int output : instruction.outputs) {
      const std::string& label = program.at(program.root(output)).label;
      if (label.ends_with(" fetched")) labels.push_back(label);
    }
    if (!labels.empty()) transfers.push_back(std::move(labels));
  }
  return transfers;
}

TEST(CompileTraining, GradientsOnNvmeLeaveTheTransfersOfAUnitTogether) {
  RunConfig run;
  run.max_length = 512;
  run.threads = 1;
  run.offload_param = run.offload_activations = OffloadDevice::nvme;
  const auto plain = fetched(run);
  // Embedding, blocks and head; weights forward and backward, activations backward alone.
  EXPECT_GE(plain.size(), 3 * kBlocks);
  run.offload_gradients = OffloadDevice::nvme;
  EXPECT_EQ(fetched(run), plain);
}

}  // namespace
}  // namespace heddle
