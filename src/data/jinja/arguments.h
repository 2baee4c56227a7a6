#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "data/jinja/value.h"

namespace heddle::jinja {

/// What a call passes.
class Arguments {
 public:
  explicit Arguments(std::string_view callee, std::span<const Value> by_place = {},
                     std::span<const Keyword> by_name = {})
      : positional(by_place), keywords(by_name), callee_(callee) {}

  std::span<const Value> positional;
  std::span<const Keyword> keywords;

  std::string_view callee() const { return callee_; }
  const Value* keyword(std::string_view name) const;

  /// The values of the parameters, by place or by name; those left out are `missing`. Throws Error as Python does where
  /// there are too many, unknown ones, or fewer than `required`.
  template <std::size_t N>
  std::array<Value, N> bind(const std::array<std::string_view, N>& names, std::size_t required) const {
    std::array<Value, N> values;
    bind(names, required, values);
    return values;
  }
  /// Throws Error if there are any.
  void expect_none() const { bind({}, 0, {}); }

 private:
  void bind(std::span<const std::string_view> names, std::size_t required, std::span<Value> values) const;
  std::string_view callee_;
};

/// Reads an argument as Python would take it; throws "'str' object cannot be interpreted as an integer" and the like.
std::int64_t integer_of(const Value& value);
std::int64_t integer_or(const Value& value, std::int64_t otherwise);  // where missing or None
double number_of(const Value& value);
std::string_view string_of(const Value& value, std::string_view what);
bool flag_or(const Value& value, bool otherwise);  // where missing

}  // namespace heddle::jinja
