// What stands behind `is`.
#include "data/jinja/arguments.h"
#include "data/jinja/builtins.h"
#include "data/jinja/operators.h"
#include "data/jinja/print.h"
#include "data/jinja/sequences.h"
#include "data/jinja/string_search.h"

namespace heddle::jinja {
namespace {

template <Kind kind>
bool is_kind(Runtime&, const Value& input, Arguments& arguments) {
  arguments.expect_none();
  return input.is(kind);
}

bool is_defined(Runtime&, const Value& input, Arguments& arguments) {
  arguments.expect_none();
  return !input.is(Kind::undefined);
}

template <bool wanted>
bool is_boolean(Runtime&, const Value& input, Arguments& arguments) {
  arguments.expect_none();
  return input.is(Kind::boolean) && input.boolean == wanted;
}

bool is_number(Runtime&, const Value& input, Arguments& arguments) {
  arguments.expect_none();
  return input.is_number();
}

bool is_sequence(Runtime&, const Value& input, Arguments& arguments) {
  arguments.expect_none();
  return input.is_string() || input.is_sequence() || input.is(Kind::dict) || input.is(Kind::range) ||
         input.is(Kind::undefined);
}

bool is_iterable_test(Runtime&, const Value& input, Arguments& arguments) {
  arguments.expect_none();
  return is_iterable(input);
}

bool is_callable(Runtime&, const Value& input, Arguments& arguments) {
  arguments.expect_none();
  return input.is(Kind::undefined) || (input.is(Kind::object) && input.object->is_callable());
}

bool is_escaped(Runtime&, const Value& input, Arguments& arguments) {
  arguments.expect_none();
  return input.is_markup;
}

Value remainder(Runtime& runtime, const Value& input, const Value& divisor) {
  return operate(runtime, BinaryOp::remainder, input, divisor);
}

template <std::int64_t wanted>
bool has_parity(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.expect_none();
  return equals(runtime, remainder(runtime, input, Value(std::int64_t{2})), Value(wanted));
}

bool is_divisible(Runtime& runtime, const Value& input, Arguments& arguments) {
  const auto [divisor] = arguments.bind<1>({"num"}, 1);
  return equals(runtime, remainder(runtime, input, divisor), Value(std::int64_t{0}));
}

bool is_lower(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.expect_none();
  return is_lower_text(text_of(runtime, input));
}

bool is_upper(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.expect_none();
  return is_upper_text(text_of(runtime, input));
}

template <Comparison comparison>
bool compares(Runtime& runtime, const Value& input, Arguments& arguments) {
  const auto [other] = arguments.bind<1>({"other"}, 1);
  return compare(runtime, comparison, input, other);
}

bool is_sameas(Runtime&, const Value& input, Arguments& arguments) {
  const auto [other] = arguments.bind<1>({"other"}, 1);
  return is_same(input, other);
}

bool is_filter(Runtime&, const Value& input, Arguments& arguments) {
  arguments.expect_none();
  check_hashable(input);
  return input.is_string() && find_filter(input.text()) != nullptr;
}

bool is_test(Runtime&, const Value& input, Arguments& arguments) {
  arguments.expect_none();
  check_hashable(input);
  return input.is_string() && find_test(input.text()) != nullptr;
}

constexpr Named<TestFunction> kTests[] = {
    {"defined", is_defined},
    {"undefined", is_kind<Kind::undefined>},
    {"none", is_kind<Kind::none>},
    {"string", is_kind<Kind::string>},
    {"mapping", is_kind<Kind::dict>},
    {"boolean", is_kind<Kind::boolean>},
    {"true", is_boolean<true>},
    {"false", is_boolean<false>},
    {"integer", is_kind<Kind::integer>},
    {"float", is_kind<Kind::floating>},
    {"number", is_number},
    {"sequence", is_sequence},
    {"iterable", is_iterable_test},
    {"callable", is_callable},
    {"escaped", is_escaped},
    {"odd", has_parity<1>},
    {"even", has_parity<0>},
    {"divisibleby", is_divisible},
    {"lower", is_lower},
    {"upper", is_upper},
    {"sameas", is_sameas},
    {"filter", is_filter},
    {"test", is_test},
    {"in", compares<Comparison::in>},
    {"==", compares<Comparison::equal>},
    {"eq", compares<Comparison::equal>},
    {"equalto", compares<Comparison::equal>},
    {"!=", compares<Comparison::not_equal>},
    {"ne", compares<Comparison::not_equal>},
    {"<", compares<Comparison::less>},
    {"lt", compares<Comparison::less>},
    {"lessthan", compares<Comparison::less>},
    {"<=", compares<Comparison::less_equal>},
    {"le", compares<Comparison::less_equal>},
    {">", compares<Comparison::greater>},
    {"gt", compares<Comparison::greater>},
    {"greaterthan", compares<Comparison::greater>},
    {">=", compares<Comparison::greater_equal>},
    {"ge", compares<Comparison::greater_equal>},
};

}  // namespace

TestFunction find_test(std::string_view name) {
  for (const auto& [known, function] : kTests) {
    if (known == name) return function;
  }
  return nullptr;
}

FilterFunction find_filter(std::string_view name) {
  for (const Filters filters :
       {text_filters(), sequence_filters(), mapping_filters(), number_filters(), markup_filters()}) {
    for (const auto& [known, function] : filters) {
      if (known == name) return function;
    }
  }
  return nullptr;
}

}  // namespace heddle::jinja
