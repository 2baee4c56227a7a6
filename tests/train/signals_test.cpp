#include "train/signals.h"

#include <gtest/gtest.h>

#include <csignal>

namespace heddle {
namespace {

TEST(SignalWatch, NotesWhatAsksToStop) {
  const auto before = std::signal(SIGHUP, SIG_DFL);  // whoever started the tests may have ignored it
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    const SignalWatch watch;
    EXPECT_EQ(SignalWatch::received(), 0);
    std::raise(number);
    EXPECT_EQ(SignalWatch::received(), number);
  }
  EXPECT_EQ(SignalWatch::name_of(SIGINT), "SIGINT");
  EXPECT_EQ(SignalWatch::name_of(SIGTERM), "SIGTERM");
  EXPECT_EQ(SignalWatch::name_of(SIGHUP), "SIGHUP");
  std::signal(SIGHUP, before);
}

TEST(SignalWatch, AsksForACheckpointAsOftenAsItIsTold) {
  const SignalWatch watch;
  EXPECT_FALSE(SignalWatch::take_save_request());
  for (int i = 0; i < 2; ++i) {
    std::raise(SIGUSR1);
    EXPECT_TRUE(SignalWatch::take_save_request());
    EXPECT_FALSE(SignalWatch::take_save_request());
  }
  EXPECT_EQ(SignalWatch::received(), 0) << "training goes on";
}

TEST(SignalWatch, OutlivesTheReaderOfTheProgressAndUnderNohupTheTerminal) {
  const auto before = std::signal(SIGHUP, SIG_IGN);
  {
    const SignalWatch watch;
    std::raise(SIGPIPE);
    std::raise(SIGHUP);
    EXPECT_EQ(SignalWatch::received(), 0);
  }
  EXPECT_EQ(std::signal(SIGHUP, before), SIG_IGN);  // as it was found
}

}  // namespace
}  // namespace heddle
