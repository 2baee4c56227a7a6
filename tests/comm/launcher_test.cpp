#include "comm/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "base/error.h"

namespace heddle {
namespace {

/// Variables of a launch, in place of those of the test's own.
class Launching : public testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override { clear(); }
  static void set(const std::map<std::string, std::string>& variables) {
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  }

 private:
  static void clear() {
    for (const char* name :
         {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "PMI_RANK",
          "PMI_SIZE", "PMIX_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_PROCID"}) {
      unsetenv(name);
    }
  }
};

TEST_F(Launching, WithoutALauncherThereIsNone) {
  EXPECT_FALSE(is_launched());
  set({{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}});  // the batch script itself, not what srun starts
  EXPECT_FALSE(is_launched());
  set({{"SLURM_STEP_NUM_TASKS", "1"}});
  EXPECT_FALSE(is_launched());
}

TEST_F(Launching, MpirunOfOpenMpiIsKnown) {
  set({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"PMIX_RANK", "2"}});
  EXPECT_EQ(launched_rank(), 2);
  EXPECT_EQ(launched_size(), 4);
}

TEST_F(Launching, MpichIsKnown) {
  set({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}});
  EXPECT_TRUE(is_launched());
  EXPECT_EQ(launched_size(), 1);
}

TEST_F(Launching, SlurmSaysTheNumberWherePmixDoesNot) {
  set({{"PMIX_RANK", "3"}, {"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_PROCID", "3"}});
  EXPECT_EQ(launched_rank(), 3);
  EXPECT_EQ(launched_size(), 8);
}

TEST_F(Launching, SrunWithoutPmiIsRefused) {
  set({{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "1"}});
  EXPECT_THROW(find_launch(), Error);
}

TEST_F(Launching, WhatIsNoNumberIsNoLauncher) {
  set({{"PMI_RANK", "rank"}});
  EXPECT_FALSE(is_launched());
}

TEST_F(Launching, WithoutOneAJobRunsAsThreads) {
  EXPECT_EQ(run_job(3, [](Communicator& c) { return c.transport() == "threads" && c.size() == 3 ? 5 : 0; }), 5);
  EXPECT_EQ(run_job(0, [](Communicator& c) { return c.transport() == "alone" && c.size() == 1 ? 6 : 0; }), 6);
}

}  // namespace
}  // namespace heddle
