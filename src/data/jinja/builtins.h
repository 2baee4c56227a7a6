#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "data/jinja/value.h"

/// The filters, tests, methods and global functions of a template, by name.
namespace heddle::jinja {

class Arguments;
class Runtime;

using FilterFunction = Value (*)(Runtime&, const Value& input, Arguments&);
using TestFunction = bool (*)(Runtime&, const Value& input, Arguments&);
using MethodFunction = Value (*)(Runtime&, const Value& self, Arguments&);

/// Null where there is none of that name.
FilterFunction find_filter(std::string_view name);
TestFunction find_test(std::string_view name);

struct Method {
  std::string_view name;
  MethodFunction function;  // null: it would change its object, which the sandbox refuses
};

/// What an attribute of that name is to each type of value.
struct MethodsOfName {
  const Method* string = nullptr;
  const Method* list = nullptr;
  const Method* tuple = nullptr;
  const Method* dict = nullptr;
  const Method* of(const Value& value) const;
};
MethodsOfName find_methods(std::string_view name);

/// An entry of a table of functions.
template <typename Function>
struct Named {
  std::string_view name;
  Function function;
};
using Filters = std::span<const Named<FilterFunction>>;
Filters text_filters();
Filters sequence_filters();
Filters mapping_filters();
Filters number_filters();
Filters markup_filters();

using Methods = std::span<const Method>;
Methods string_methods();
Methods list_methods();
Methods tuple_methods();
Methods dict_methods();

/// A variable that every template has: range, dict, namespace, ... Missing where there is none of that name.
Value find_global(Runtime& runtime, std::string_view name);

}  // namespace heddle::jinja
