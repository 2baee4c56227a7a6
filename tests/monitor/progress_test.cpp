#include "monitor/progress.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <limits>

#include "temporary_folder.h"

namespace heddle {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

/// What a Progress wrote.
class Written {
 public:
  Written() : descriptor_(::open((folder_.path() / "err").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {}
  ~Written() { ::close(descriptor_); }
  Written(const Written&) = delete;
  Written& operator=(const Written&) = delete;
  int descriptor() const { return descriptor_; }
  std::string text() const { return text_of(folder_.path() / "err"); }

 private:
  TemporaryFolder folder_;
  int descriptor_;
};

StepMetrics step(std::int64_t number) {
  StepMetrics metrics;
  metrics.step = number;
  metrics.loss = 3.45671;
  metrics.learning_rate = 3e-4;
  metrics.grad_norm = 0.8731;
  metrics.tokens_per_second = 12345.4;
  return metrics;
}

std::ptrdiff_t lines_of(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

TEST(Progress, APlainLineNamesTheFiguresOfAStep) {
  const Written written;
  Progress progress({.descriptor = written.descriptor(), .max_steps = 100, .held_bytes = std::uint64_t{3} << 29});
  progress.on_step(step(12));
  EXPECT_THAT(written.text(),
              StartsWith("step 12/100  loss 3.4567  lr 0.0003  norm 0.873  12,345 tok/s  1.5 GiB  0s left\n"));
}

TEST(Progress, LoggingStepsThinsTheLinesButNeverTheLast) {
  const Written written;
  Progress progress({.descriptor = written.descriptor(), .max_steps = 25, .logging_steps = 10});
  for (int i = 1; i <= 25; ++i) progress.on_step(step(i));
  EXPECT_EQ(lines_of(written.text()), 3);
  EXPECT_THAT(written.text(), HasSubstr("step 20/25"));
  EXPECT_THAT(written.text(), HasSubstr("step 25/25"));
}

// A signal leaves a checkpoint of the last step that was printed, so the last step done must be printed.
TEST(Progress, ARunThatStopsEarlyShowsItsLastStep) {
  for (const bool is_terminal : {false, true}) {
    const Written written;
    {
      Progress progress(
          {.descriptor = written.descriptor(), .is_terminal = is_terminal, .max_steps = 25, .logging_steps = 10});
      for (int i = 1; i <= 13; ++i) progress.on_step(step(i));
      EXPECT_THAT(written.text(), Not(HasSubstr("13/25")));
    }
    EXPECT_THAT(written.text(), HasSubstr("13/25"));
    EXPECT_TRUE(written.text().ends_with('\n'));
  }
}

TEST(Progress, ASkippedStepIsAlwaysSaid) {
  const Written written;
  Progress progress({.descriptor = written.descriptor(), .max_steps = 25, .logging_steps = 10});
  auto skipped = step(3);
  skipped.skipped = true;
  skipped.grad_norm = std::numeric_limits<double>::infinity();
  skipped.loss_scale = 65536;
  progress.on_step(skipped);
  EXPECT_EQ(written.text(), "step 3/25  skipped: its gradient is not finite (loss scale 65536)\n");
}

TEST(Progress, AnEvaluationHasItsLine) {
  const Written written;
  Progress progress({.descriptor = written.descriptor(), .max_steps = 25});
  progress.on_evaluation({5, 1.25, 3.4903, 123456});
  EXPECT_EQ(written.text(), "step 5/25  eval_loss 1.2500  eval_perplexity 3.49  123,456 tokens\n");
}

TEST(Progress, ATerminalGetsOneLineRedrawnInPlaceAndLeftAtTheEnd) {
  const Written written;
  {
    Progress progress({.descriptor = written.descriptor(), .is_terminal = true, .max_steps = 2});
    progress.on_step(step(1));
    progress.on_step(step(2));
    EXPECT_EQ(lines_of(written.text()), 0);
    EXPECT_THAT(written.text(), HasSubstr("\x1b[K\r"));
    EXPECT_THAT(written.text(), HasSubstr("2/2 "));
  }
  EXPECT_EQ(lines_of(written.text()), 1);
}

TEST(Progress, ATerminalIsRedrawnAtMostTenTimesASecond) {
  const Written written;
  const auto began = std::chrono::steady_clock::now();
  Progress progress({.descriptor = written.descriptor(), .is_terminal = true, .max_steps = 100000});
  for (int i = 1; i <= 20000; ++i) progress.on_step(step(i));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
  const auto text = written.text();
  EXPECT_LE(std::count(text.begin(), text.end(), '\r'), 1 + static_cast<std::ptrdiff_t>(seconds.count() * 10));
  EXPECT_GE(std::count(text.begin(), text.end(), '\r'), 1);
}

TEST(Progress, TheBarFitsTheTerminal) {
  const std::string figures = "loss 3.4567  lr 0.0003";
  for (const int columns : {1, 10, 30, 40, 60, 80, 200}) {
    const auto line = progress_bar(50, 100, figures, columns);
    std::ptrdiff_t shown = 0;
    for (const char c : line) shown += (static_cast<unsigned char>(c) & 0xC0u) != 0x80u ? 1 : 0;
    EXPECT_LE(shown, columns) << line;
  }
  EXPECT_THAT(progress_bar(50, 100, figures, 80), HasSubstr("━━━━━━━━━━━━━━━───────────────  loss"));
  EXPECT_THAT(progress_bar(0, 100, figures, 80), Not(HasSubstr("━")));
  EXPECT_THAT(progress_bar(100, 100, figures, 80), Not(HasSubstr("─")));
}

TEST(Progress, DurationsHaveTwoUnits) {
  EXPECT_EQ(format_duration(7.4), "7s");
  EXPECT_EQ(format_duration(125), "2m05s");
  EXPECT_EQ(format_duration(3 * 3600 + 7 * 60 + 9), "3h07m");
  EXPECT_EQ(format_duration(4 * 86400 + 2 * 3600), "4d02h");
}

}  // namespace
}  // namespace heddle
