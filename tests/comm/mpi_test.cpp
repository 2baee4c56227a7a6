// Jobs of processes under mpirun; skipped where there is none.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "collectives.h"
#include "comm/launcher.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string read(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class Mpi : public testing::Test {
 protected:
  void SetUp() override {
    if (mpi_staging_bytes(2) == 0) GTEST_SKIP() << "this build has no MPI";
    if (std::system("command -v mpirun >/dev/null 2>&1") != 0) GTEST_SKIP() << "there is no mpirun";
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
    GTEST_SKIP() << "the thread sanitizer does not know this MPI's own threads";
#endif
#endif
    folder_ = fs::temp_directory_path() / fmt::format("heddle_mpi_{}", getpid());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  struct Ended {
    int code;             ///< of mpirun
    std::string printed;  ///< by mpirun and by the ranks
    double seconds;
  };
  /// Runs a scene of mpi_scenes.cpp as `ranks` processes.
  Ended launch(const std::string& scene, int ranks) const {
    const auto start = std::chrono::steady_clock::now();
    const std::string printed = folder_ / "printed";
    // Leaks of the MPI library are not ours to find. MPICH knows no --oversubscribe, and needs none.
    const std::string options = std::system("mpirun --version 2>&1 | grep -qi 'open.mpi\\|openrte\\|prrte'") == 0
                                    ? "--allow-run-as-root --oversubscribe"
                                    : "";
    const int status =
        std::system(fmt::format("ASAN_OPTIONS=detect_leaks=0 timeout 120 mpirun {} -n {} {} --as-rank {} {} >{} 2>&1",
                                options, ranks, fs::read_symlink("/proc/self/exe").string(), scene, output(), printed)
                        .c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read(printed),
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()};
  }
  std::string output() const { return folder_ / "output"; }

  fs::path folder_;
};

TEST(WithoutMpi, ALaunchIsRefused) {
  if (mpi_staging_bytes(2) > 0) GTEST_SKIP() << "this build has MPI";
  try {
    run_mpi({0, 2, "PMI_RANK"}, [](Communicator&) { return 0; }, {});
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("a launcher started this process (PMI_RANK), but heddle was built without MPI"));
  }
}

TEST_F(Mpi, CollectivesGiveTheBitsOfThreads) {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    std::vector<std::string> expected(static_cast<std::size_t>(ranks));
    run_ranks(ranks, [&](Communicator& communicator) {
      for (const auto& outcome : collectives::check_all(communicator)) {
        expected[static_cast<std::size_t>(communicator.rank())] +=
            fmt::format("{:016x} {}\n", outcome.digest, outcome.name);
      }
      return 0;
    });
    const Ended ended = launch("outcomes", ranks);
    ASSERT_EQ(ended.code, 0) << ended.printed;
    for (int r = 0; r < ranks; ++r) {
      EXPECT_EQ(read(fmt::format("{}.{}", output(), r)), expected[static_cast<std::size_t>(r)])
          << "rank " << r << " of " << ranks;
    }
  }
}

TEST_F(Mpi, EveryProcessEndsWithTheGreatestExitCode) { EXPECT_EQ(launch("code", 3).code, 7); }

TEST_F(Mpi, AFailureEndsTheJobAndNamesItsRank) {
  const Ended ended = launch("failure", 3);
  EXPECT_NE(ended.code, 0);
  EXPECT_THAT(ended.printed, HasSubstr("heddle: error: rank 1: rows.jsonl:9: no such token"));
}

TEST_F(Mpi, AStalledCollectiveIsNamedWithTheRanksThatAreMissing) {
  const Ended ended = launch("stall", 3);
  EXPECT_NE(ended.code, 0);
  EXPECT_THAT(ended.printed, HasSubstr("all_reduce (loss) waited 2 s for rank 1"));
  EXPECT_LT(ended.seconds, 30);
}

TEST_F(Mpi, ARankThatIsKilledEndsTheJob) {
  const Ended ended = launch("death", 3);
  EXPECT_NE(ended.code, 0);
  EXPECT_THAT(ended.printed, testing::AnyOf(HasSubstr("signal 9"), HasSubstr("SIGKILL"), HasSubstr("Killed")));
  EXPECT_LT(ended.seconds, 30);
}

TEST_F(Mpi, AMessageOfAnotherSizeIsRefused) {
  const Ended ended = launch("size", 2);
  EXPECT_NE(ended.code, 0);
  EXPECT_THAT(
      ended.printed,
      HasSubstr("heddle: error: rank 1: broadcast (embedding): 1000 bytes came from rank 0, 2000 were expected"));
}

TEST_F(Mpi, ANumberOfRanksThatIsNotTheLaunchersIsRefused) {
  const Ended ended = launch("ranks", 2);
  EXPECT_NE(ended.code, 0);
  EXPECT_THAT(ended.printed, HasSubstr("heddle: error: ranks is 5, but the launcher started 2 processes"));
}

}  // namespace
}  // namespace heddle
