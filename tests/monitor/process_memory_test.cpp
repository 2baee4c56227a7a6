#include "monitor/process_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

namespace heddle {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

TEST(MemoryWatch, AllowsTwoPercentOr32MiBWhicheverIsMore) {
  const MemoryWatch small(100 * kMiB, 10 * kMiB);  // 2% are 2 MiB
  EXPECT_EQ(small.excess(10 * kMiB + 132 * kMiB), 0U);
  EXPECT_EQ(small.excess(10 * kMiB + 132 * kMiB + 1), 32 * kMiB + 1);
  EXPECT_EQ(small.excess(0), 0U);
  const MemoryWatch large(10'000 * kMiB, 0);  // 2% are 200 MiB
  EXPECT_EQ(large.excess(10'200 * kMiB), 0U);
  EXPECT_EQ(large.excess(10'201 * kMiB), 201 * kMiB);
}

TEST(MemoryWatch, SaysAnExcessOnceAndAgainWhenItHasDoubled) {
  MemoryWatch watch(0, 0);
  EXPECT_FALSE(watch.is_news(0));
  EXPECT_TRUE(watch.is_news(40 * kMiB));
  EXPECT_FALSE(watch.is_news(40 * kMiB));
  EXPECT_FALSE(watch.is_news(79 * kMiB));
  EXPECT_TRUE(watch.is_news(80 * kMiB));
}

TEST(AnonymousBytes, GrowByWhatIsTouchedAndGoBack) {
  constexpr std::size_t kBytes = 64 * kMiB;
  const std::uint64_t before = anonymous_bytes();
  ASSERT_GT(before, 0U);
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  EXPECT_LT(anonymous_bytes(), before + kBytes / 2);  // not yet there
  std::memset(memory, 1, kBytes);
  EXPECT_GE(anonymous_bytes(), before + kBytes / 2);
  munmap(memory, kBytes);
  EXPECT_LT(anonymous_bytes(), before + kBytes / 2);
}

}  // namespace
}  // namespace heddle
