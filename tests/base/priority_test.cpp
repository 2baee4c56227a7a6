#include "base/priority.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <thread>

namespace heddle {
namespace {

int nice_of_this_thread() { return getpriority(PRIO_PROCESS, 0); }

TEST(Priority, IsLoweredOfAThreadAndOfThoseThatItStartsAndOfNoOther) {
  const int before = nice_of_this_thread();
  int lowered = 0, inherited = 0;
  std::thread([&] {
    lower_priority();
    lowered = nice_of_this_thread();
    std::thread([&] { inherited = nice_of_this_thread(); }).join();
  }).join();
  EXPECT_EQ(lowered, std::min(before + 5, 19));  // 19 is the last there is
  EXPECT_EQ(inherited, lowered);
  EXPECT_EQ(nice_of_this_thread(), before);
}

}  // namespace
}  // namespace heddle
