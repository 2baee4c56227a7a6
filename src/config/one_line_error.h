#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace heddle {

/// Keys and values of any bytes may be part of an error; it stays one line, of a sane length.
std::string one_line(std::string_view text);

/// What `function` returns; the text of an Error that it throws becomes one line.
template <typename Function>
auto with_one_line_errors(Function&& function) {
  try {
    return std::forward<Function>(function)();
  } catch (const Error& e) {
    throw Error(one_line(e.what()));
  }
}

}  // namespace heddle
