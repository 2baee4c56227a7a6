// test_conformance                        tests
// test_conformance --support              which operations there are, in which precision, on which backend
// test_conformance --digests              what they compute, to compare with another machine's
// test_conformance --performance [NAME]   times and fractions of the machine's ceilings  [--threads N]
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <string_view>

#include "base/threads.h"
#include "support.h"

int main(int argc, char** argv) {
  bool performance = false;
  std::string filter;
  int threads = heddle::available_cores();
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--support") {
      std::printf("%s", heddle::conformance::support_table().c_str());
      return 0;
    }
    if (argument == "--digests") {
      std::printf("%s", heddle::conformance::digest_table().c_str());
      return 0;
    }
    if (argument == "--performance") {
      performance = true;
    } else if (argument == "--threads" && i + 1 < argc) {
      threads = std::stoi(argv[++i]);
    } else if (performance) {
      filter = argument;
    }
  }
  if (performance) {
    heddle::conformance::print_performance(threads, filter);
    return 0;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
