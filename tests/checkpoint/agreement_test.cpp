#include "checkpoint/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "base/error.h"
#include "comm/job.h"

namespace heddle {
namespace {

TEST(Agreement, TheFirstFailingRanksErrorIsThrownOnAll) {
  std::array<std::string, 4> errors;
  run_ranks(4, [&](Communicator& communicator) {
    try {
      agree(communicator, [&] {
        if (communicator.rank() == 2) fail("the second");
        if (communicator.rank() == 1) fail("the first");
      });
    } catch (const Error& e) {
      errors[static_cast<std::size_t>(communicator.rank())] = e.what();
    }
    return 0;
  });
  EXPECT_THAT(errors, testing::Each("the first"));
}

TEST(Agreement, WithoutAFailureAllGoOn) {
  std::array<int, 3> done{};
  run_ranks(3, [&](Communicator& communicator) {
    EXPECT_FALSE(first_failure(communicator, [] {}).has_value());
    done[static_cast<std::size_t>(communicator.rank())] = 1;
    return 0;
  });
  EXPECT_THAT(done, testing::Each(1));
}

TEST(Agreement, TextsComeToRankZeroInTheirOrder) {
  std::vector<std::string> found;
  run_ranks(3, [&](Communicator& communicator) {
    const std::array<std::string, 3> texts = {"zero", "", "and two"};
    const auto all = gather_texts(communicator, texts[static_cast<std::size_t>(communicator.rank())]);
    if (communicator.rank() == 0) found = all;
    EXPECT_EQ(broadcast_text(communicator, communicator.rank() == 2 ? "said by two" : "", 2), "said by two");
    return 0;
  });
  EXPECT_THAT(found, testing::ElementsAre("zero", "", "and two"));
}

}  // namespace
}  // namespace heddle
