#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <limits>

namespace heddle::cli {

inline constexpr std::int64_t kLongestText = std::int64_t{1} << 30;  ///< as max_length
inline constexpr std::int64_t kMostThreads = 1 << 16;

/// Checks of options that take a number. CLI11's own let NaN pass, and print the range of a double in full.
/// From `least` on, and to `most` where one is given.
CLI::Validator whole_number(std::int64_t least, std::int64_t most = std::numeric_limits<std::int64_t>::max());
CLI::Validator at_least_0();
CLI::Validator above_0();
/// From 0 to `most`.
CLI::Validator up_to(double most);

}  // namespace heddle::cli
