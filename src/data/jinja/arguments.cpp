#include "data/jinja/arguments.h"

#include <algorithm>

#include "base/error.h"
#include "data/jinja/value.h"

namespace heddle::jinja {

const Value* Arguments::keyword(std::string_view name) const {
  for (const auto& [key, value] : keywords) {
    if (key == name) return &value;
  }
  return nullptr;
}

void Arguments::bind(std::span<const std::string_view> names, std::size_t required, std::span<Value> values) const {
  std::fill(values.begin(), values.end(), Value::missing());
  if (positional.size() > names.size()) {
    fail("{}() takes at most {} argument(s) but {} were given", callee_, names.size(), positional.size());
  }
  std::copy(positional.begin(), positional.end(), values.begin());
  for (const auto& [name, value] : keywords) {
    const auto at = static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin());
    if (at == names.size()) fail("{}() got an unexpected keyword argument '{}'", callee_, name);
    if (!values[at].is(Kind::missing)) fail("{}() got multiple values for argument '{}'", callee_, name);
    values[at] = value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (values[i].is(Kind::missing)) fail("{}() missing required argument: '{}'", callee_, names[i]);
  }
}

std::int64_t integer_of(const Value& value) {
  if (value.is_integral()) return value.as_integer();
  if (value.is(Kind::undefined)) fail_undefined(value);
  fail("'{}' object cannot be interpreted as an integer", type_name(value));
}

std::int64_t integer_or(const Value& value, std::int64_t otherwise) {
  return value.is(Kind::missing) || value.is(Kind::none) ? otherwise : integer_of(value);
}

double number_of(const Value& value) {
  if (value.is_number()) return value.as_floating();
  if (value.is(Kind::undefined)) fail_undefined(value);
  fail("must be real number, not {}", type_name(value));
}

std::string_view string_of(const Value& value, std::string_view what) {
  if (value.is_string()) return value.text();
  fail("{} must be str, not {}", what, type_name(value));
}

bool flag_or(const Value& value, bool otherwise) { return value.is(Kind::missing) ? otherwise : is_true(value); }

}  // namespace heddle::jinja
