// A run that may not take longer stops saved, and the next one goes on with its bits.
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>

#include "base/error.h"
#include "small_run.h"
#include "train/trainer.h"

namespace heddle::endtoend {
namespace {

class EndOfJob {
 public:
  explicit EndOfJob(const std::string& text) { ::setenv("SLURM_JOB_END_TIME", text.c_str(), 1); }
  ~EndOfJob() { ::unsetenv("SLURM_JOB_END_TIME"); }
};

std::string seconds_from_now(std::time_t seconds) { return std::to_string(std::time(nullptr) + seconds); }

Json run_of_three_steps(const std::filesystem::path& folder, const std::string& name) {
  Json run = small_run(folder, llama_config(), name);
  run["max_steps"] = 3;
  return run;
}

TEST(TimeLimit, StopsARunWhoseResumeHasTheBitsOfOneWithout) {
  const TemporaryFolder folder;
  ASSERT_EQ(train(run_file(run_of_three_steps(folder.path(), "plain"))), 0);
  Json run = run_of_three_steps(folder.path(), "out");
  run["max_minutes"] = 1e-9;
  EXPECT_EQ(train(run_file(run)), 143);
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "out" / "checkpoint-1"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "out" / "model.safetensors"));
  run.erase("max_minutes");
  {
    const EndOfJob soon(seconds_from_now(30));  // less than a minute
    EXPECT_EQ(train(run_file(run)), 143);
    EXPECT_TRUE(std::filesystem::exists(folder.path() / "out" / "checkpoint-2"));
  }
  const EndOfJob late(seconds_from_now(36000));
  EXPECT_EQ(train(run_file(run)), 0);
  EXPECT_EQ(trajectory(folder.path() / "out"), trajectory(folder.path() / "plain"));
  EXPECT_EQ(read_file(folder.path() / "out" / "model.safetensors"),
            read_file(folder.path() / "plain" / "model.safetensors"));
}

TEST(TimeLimit, AnEndOfTheJobThatIsNoNumberIsNamed) {
  const TemporaryFolder folder;
  const EndOfJob unknown("tomorrow");
  try {
    train(run_file(run_of_three_steps(folder.path(), "out")));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("SLURM_JOB_END_TIME is 'tomorrow'"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace heddle::endtoend
