#include "base/text.h"

#include <gtest/gtest.h>

#include <array>
#include <string_view>

namespace heddle {
namespace {

constexpr std::array<std::string_view, 4> kKeys = {"learning_rate", "weight_decay", "warmup_steps", "warmup_ratio"};

TEST(Text, TheNearestNameIsTheOneThatWasMeant) {
  EXPECT_EQ(nearest_name("learning_rat", kKeys), "learning_rate");
  EXPECT_EQ(nearest_name("lerning_rate", kKeys), "learning_rate");
  EXPECT_EQ(nearest_name("elarning_rate", kKeys), "learning_rate");  // two letters swapped
  EXPECT_EQ(nearest_name("warmup_step", kKeys), "warmup_steps");
}

TEST(Text, NothingIsNearToAnUnrelatedName) {
  EXPECT_EQ(nearest_name("zero_stage", kKeys), "");
  EXPECT_EQ(nearest_name("", kKeys), "");
  EXPECT_EQ(nearest_name("x", {}), "");
}

TEST(Text, ASwapOfNeighboursCountsOnce) {
  constexpr std::array<std::string_view, 1> kShort = {"abcd"};
  EXPECT_EQ(nearest_name("badc", kShort), "abcd");  // two swaps, not four replacements; two is the limit here
  EXPECT_EQ(nearest_name("dcba", kShort), "");
}

TEST(Text, DidYouMeanIsASuffixOrNothing) {
  EXPECT_EQ(did_you_mean("weight_decai", kKeys), "; did you mean weight_decay?");
  EXPECT_EQ(did_you_mean("zero_stage", kKeys), "");
}

TEST(Text, BytesHaveBinaryUnits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(std::uint64_t{16} << 30), "16.0 GiB");
}

TEST(Text, CountsHaveSeparators) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(8030261248), "8,030,261,248");
  EXPECT_EQ(format_count(0, "row"), "0 rows");
  EXPECT_EQ(format_count(1, "row"), "1 row");
  EXPECT_EQ(format_count(1000, "row"), "1,000 rows");
}

}  // namespace
}  // namespace heddle
