#include "base/cores.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace heddle {
namespace {

namespace fs = std::filesystem;

/// Control groups as the kernel shows them, in files.
class CpuQuota : public testing::Test {
 public:
  CpuQuota(const CpuQuota&) = delete;
  CpuQuota& operator=(const CpuQuota&) = delete;

 protected:
  CpuQuota() : folder_(fs::path(testing::TempDir()) / ("heddle-cgroup-" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~CpuQuota() override { fs::remove_all(folder_); }

  void write(const fs::path& path, const std::string& text) const {
    fs::create_directories((folder_ / path).parent_path());
    std::ofstream(folder_ / path) << text;
  }
  double quota() const { return cpu_quota(folder_ / "groups", folder_ / "mounts"); }

  fs::path folder_;
};

TEST_F(CpuQuota, IsNoneWithoutGroups) {
  EXPECT_EQ(quota(), 0);
  write("groups", "0::/\n");
  EXPECT_EQ(quota(), 0);
  write("mounts/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), 0);
}

TEST_F(CpuQuota, OfVersionTwoIsTheLeastOnTheWayToTheRoot) {
  write("groups", "0::/kubepods/pod1/container\n");
  write("mounts/kubepods/cpu.max", "800000 100000\n");
  write("mounts/kubepods/pod1/cpu.max", "150000 100000\n");
  write("mounts/kubepods/pod1/container/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), 1.5);
  write("mounts/kubepods/pod1/container/cpu.max", "50000 100000\n");
  EXPECT_EQ(quota(), 0.5);
}

TEST_F(CpuQuota, OfAContainersOwnNamespaceIsTheRoots) {
  write("groups", "0::/\n");
  write("mounts/cpu.max", "250000 100000\n");
  EXPECT_EQ(quota(), 2.5);
}

TEST_F(CpuQuota, OfVersionOneIsInItsCpuHierarchy) {
  write("groups", "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n3:cpuset:/docker/abc\n0::/\n");
  write("mounts/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "300000\n");
  write("mounts/cpu,cpuacct/docker/abc/cpu.cfs_period_us", "100000\n");
  write("mounts/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  write("mounts/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), 3);
}

TEST_F(CpuQuota, OfVersionOneWithoutANamespaceIsFoundWhereTheGroupIsMountedAsTheRoot) {
  write("groups", "2:cpuacct:/docker/abc\n1:cpu:/docker/abc\n");
  write("mounts/cpu/cpu.cfs_quota_us", "120000\n");
  write("mounts/cpu/cpu.cfs_period_us", "60000\n");
  EXPECT_EQ(quota(), 2);
}

TEST_F(CpuQuota, IgnoresAGroupOutsideOfTheNamespaceAndNonsense) {
  write("groups", "0::/../../other\nnonsense\n");
  write("other/cpu.max", "10000 100000\n");
  write("mounts/cpu.max", "7 oranges\n");
  EXPECT_EQ(quota(), 0);
}

TEST(CoreSet, UsableCoresAreThoseAllowedCutByWholeCoresOfTheQuota) {
  CoreSet cores{8, {0, 1, 2, 3}, 0};
  EXPECT_EQ(cores.usable(), 4);
  cores.quota = 2.5;
  EXPECT_EQ(cores.usable(), 2);
  cores.quota = 0.3;
  EXPECT_EQ(cores.usable(), 1);
  cores.quota = 64;
  EXPECT_EQ(cores.usable(), 4);
}

TEST(CoreSet, OfThisProcessHasAtLeastOneCoreAndNoMoreThanTheMachine) {
  EXPECT_GE(available_cores(), 1);
  EXPECT_LE(available_cores(), static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
}

TEST(CoreShare, SharesAreDisjointAndTakeAllCores) {
  for (const int cores : {1, 2, 7, 64}) {
    for (const int ranks : {1, 2, 3, 8}) {
      int next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const CoreShare share{rank, ranks};
        EXPECT_EQ(share.begin(cores), next);
        next = share.end(cores);
        EXPECT_GE(share.size(cores), cores / ranks);
        EXPECT_LE(share.size(cores), cores / ranks + 1);
      }
      EXPECT_EQ(next, cores);
    }
  }
}

TEST(CoresToPin, AreTheShareOfATeamThatTakesAllOfIt) {
  const CoreSet machine{4, {0, 1, 2, 3}, 0};
  EXPECT_EQ(cores_to_pin(machine, {}, 4), (std::vector{0, 1, 2, 3}));
  EXPECT_EQ(cores_to_pin(machine, {0, 2}, 2), (std::vector{0, 1}));
  EXPECT_EQ(cores_to_pin(machine, {1, 2}, 2), (std::vector{2, 3}));
}

TEST(CoresToPin, AreNoneForATeamOfOtherSizeOrABoundOrLimitedProcess) {
  const CoreSet machine{4, {0, 1, 2, 3}, 0};
  EXPECT_TRUE(cores_to_pin(machine, {}, 8).empty());
  EXPECT_TRUE(cores_to_pin(machine, {}, 3).empty());
  EXPECT_TRUE(cores_to_pin(machine, {1, 2}, 4).empty());
  EXPECT_TRUE(cores_to_pin({4, {2, 3}, 0}, {}, 2).empty()) << "bound to two of four";
  EXPECT_TRUE(cores_to_pin({4, {0, 1, 2, 3}, 2.0}, {}, 4).empty()) << "a quota of two";
  EXPECT_TRUE(cores_to_pin({1, {0}, 0}, {}, 1).empty());
}

}  // namespace
}  // namespace heddle
