#include <gtest/gtest.h>

#include "counting_allocator.h"
#include "kernels/cpu/table.h"
#include "small_run.h"
#include "train/run_setup.h"
#include "train/stream.h"
#include "train/weights.h"

namespace heddle::endtoend {
namespace {

TEST(Executor, AllocatesNothingInsideAStep) {
  if (!HEDDLE_COUNTS_ALLOCATIONS) GTEST_SKIP() << "the sanitizers bring allocators of their own";
  for (const Json& config : {llama_config(), gpt2_config()}) {
    const TemporaryFolder folder;
    const RunFile file = run_file(small_run(folder.path(), config, "out"));
    const ModelSource model = open_run_model(file.config());
    const RunData data = load_run_data(file.config(), model);
    const CompiledRun compiled = compile_run(file.config(), model, nullptr, data);
    Executor executor(compiled.program_list(), compiled.plan, cpu::find_kernel, compiled.threads);
    initialize_weights(compiled.parameters, 1, compiled.sharding, executor);
    const StreamFeed feed(executor);
    const BatchSchedule schedule(*data.train, batch_options(file.config()));
    const StepBatch batch = schedule.step(0);
    Scalars scalars;
    scalars.gradient_scale = 1.0f / static_cast<float>(batch.supervised_tokens);
    const auto step = [&] {
      for (const auto& micro_batch : batch.micro_batches) {
        feed.load(micro_batch, scalars);
        executor.run(static_cast<std::size_t>(compiled.micro_batch), scalars);
      }
      executor.run(static_cast<std::size_t>(compiled.norm), scalars);
      executor.run(static_cast<std::size_t>(compiled.update), scalars);
    };
    step();  // the team's threads are made at the first parallel region
    const long before = allocations;
    step();
    EXPECT_EQ(allocations - before, 0);
    EXPECT_GT(before, 0) << "the counter does not count";
  }
}

}  // namespace
}  // namespace heddle::endtoend
