#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace heddle {

/// What the library throws. The text is one line: where (file:line, key path, tensor, rank), what was found, what was
/// expected. `heddle` prints it after `heddle: error: ` and exits with 1.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A wrong command line; `heddle` exits with 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

/// Throws Error with the formatted text.
template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

/// Guards a promise of the library to itself, in every build type. Not for input: input gets fail() with its own text.
#define HEDDLE_CHECK(condition)                                                                            \
  do {                                                                                                     \
    if (!(condition)) ::heddle::fail("internal: {}:{}: {} does not hold", __FILE__, __LINE__, #condition); \
  } while (false)

}  // namespace heddle
