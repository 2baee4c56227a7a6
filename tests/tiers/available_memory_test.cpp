#include "tiers/available_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <limits>
#include <string>

namespace heddle {
namespace {

namespace fs = std::filesystem;

class Cgroups : public testing::Test {
 protected:
  Cgroups() {
    std::string pattern = (fs::temp_directory_path() / "heddle-test-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~Cgroups() override { fs::remove_all(folder_); }

  void write(const fs::path& path, const std::string& text) {
    fs::create_directories((folder_ / path).parent_path());
    std::ofstream(folder_ / path) << text << "\n";
  }
  std::size_t available() const { return available_in_cgroups(folder_ / "cgroup", folder_ / "fs"); }

  fs::path folder_;
};

TEST_F(Cgroups, OfVersion2LeaveTheLeastOfAllThatAProcessIsIn) {
  write("cgroup", "0::/outer/inner");
  write("fs/outer/memory.max", "5000");
  write("fs/outer/memory.current", "4000");
  write("fs/outer/memory.stat", "anon 3500\ninactive_file 300\nactive_file 200");
  write("fs/outer/inner/memory.max", "max");
  write("fs/outer/inner/memory.current", "100");
  EXPECT_EQ(available(), 1300U);  // what the kernel gives back when asked is free
  write("fs/outer/inner/memory.max", "700");
  EXPECT_EQ(available(), 600U);
  write("fs/outer/inner/memory.max", "50");
  EXPECT_EQ(available(), 0U);
}

TEST_F(Cgroups, OfVersion1AreThoseOfTheMemoryController) {
  write("cgroup", "5:devices:/other\n4:memory:/group\n0::/");
  write("fs/memory/group/memory.limit_in_bytes", "9000");
  write("fs/memory/group/memory.usage_in_bytes", "2000");
  write("fs/memory/memory.limit_in_bytes", "9223372036854771712");  // how version 1 writes: none
  write("fs/memory/memory.usage_in_bytes", "100000");
  EXPECT_EQ(available(), 7000U);
}

TEST_F(Cgroups, ThatAreNotThereLimitNothing) {
  EXPECT_EQ(available(), std::numeric_limits<std::size_t>::max());
  write("cgroup", "0::/absent");
  EXPECT_EQ(available(), std::numeric_limits<std::size_t>::max());
}

TEST(AvailableMemory, IsSomethingAndNoMoreThanThereIs) {
  const auto all = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  EXPECT_GT(available_memory(), 0U);
  EXPECT_LE(available_memory(), all);
}

}  // namespace
}  // namespace heddle
