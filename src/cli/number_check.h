#pragma once

#include <CLI/CLI.hpp>

namespace heddle::cli {

/// Checks of options that take a number. CLI11's own let NaN pass, and print the range of a double in full.
CLI::Validator at_least_0();
CLI::Validator above_0();
/// From 0 to `most`.
CLI::Validator up_to(double most);

}  // namespace heddle::cli
