#include "data/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "data/jinja/sequences.h"

namespace heddle::jinja {
namespace {

constexpr std::string_view kSigns[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};

[[noreturn]] void fail_overflow() { fail("a whole number goes beyond 64 bits"); }

[[noreturn]] void fail_types(BinaryOp op, const Value& left, const Value& right) {
  if (left.is(Kind::undefined)) fail_undefined(left);
  if (right.is(Kind::undefined)) fail_undefined(right);
  if (op == BinaryOp::add && (left.is_string() || left.is_sequence())) {
    const auto name = type_name(left);
    fail("can only concatenate {} (not \"{}\") to {}", name, type_name(right), name);
  }
  fail("unsupported operand type(s) for {}: '{}' and '{}'", kSigns[static_cast<std::size_t>(op)], type_name(left),
       type_name(right));
}

Value add_integers(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) fail_overflow();
  return Value(sum);
}

std::int64_t floor_quotient(std::int64_t a, std::int64_t b) {
  if (b == 0) fail("integer division or modulo by zero");
  if (a == INT64_MIN && b == -1) fail_overflow();
  const std::int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

std::int64_t integer_remainder(std::int64_t a, std::int64_t b) {
  if (b == 0) fail("integer modulo by zero");
  if (b == -1) return 0;
  const std::int64_t remainder = a % b;
  return remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

std::int64_t integer_power(std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) fail_overflow();
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) fail_overflow();
  }
  return result;
}

double float_remainder(double a, double b) {
  if (b == 0.0) fail("float modulo");
  const double remainder = std::fmod(a, b);
  if (remainder == 0.0) return std::copysign(0.0, b);
  return (b < 0.0) != (remainder < 0.0) ? remainder + b : remainder;
}

double float_floor_quotient(double a, double b) {
  if (b == 0.0) fail("float floor division by zero");
  double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0.0 && (b < 0.0) != (remainder < 0.0)) quotient -= 1.0;
  if (quotient == 0.0) return std::copysign(0.0, a / b);
  const double whole = std::floor(quotient);
  return quotient - whole > 0.5 ? whole + 1.0 : whole;
}

double float_power(double a, double b) {
  if (a == 0.0 && b < 0.0) fail("0.0 cannot be raised to a negative power");
  if (a < 0.0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b)) fail("a complex number is not supported");
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) fail("(34, 'Numerical result out of range')");
  return result;
}

Value operate_integers(BinaryOp op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  switch (op) {
    case BinaryOp::add: return add_integers(a, b);
    case BinaryOp::subtract:
      if (__builtin_sub_overflow(a, b, &result)) fail_overflow();
      return Value(result);
    case BinaryOp::multiply:
      if (__builtin_mul_overflow(a, b, &result)) fail_overflow();
      return Value(result);
    case BinaryOp::divide:
      if (b == 0) fail("division by zero");
      return Value(static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));  // 64 bits, exact
    case BinaryOp::floor_divide: return Value(floor_quotient(a, b));
    case BinaryOp::remainder: return Value(integer_remainder(a, b));
    case BinaryOp::power:
      if (b < 0) return Value(float_power(static_cast<double>(a), static_cast<double>(b)));
      return Value(integer_power(a, b));
  }
  return {};
}

Value operate_floats(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::add: return Value(a + b);
    case BinaryOp::subtract: return Value(a - b);
    case BinaryOp::multiply: return Value(a * b);
    case BinaryOp::divide:
      if (b == 0.0) fail("float division by zero");
      return Value(a / b);
    case BinaryOp::floor_divide: return Value(float_floor_quotient(a, b));
    case BinaryOp::remainder: return Value(float_remainder(a, b));
    case BinaryOp::power: return Value(float_power(a, b));
  }
  return {};
}

Value add(Runtime& runtime, const Value& left, const Value& right) {
  if (left.is_string() && right.is_string()) {
    runtime.spend_bytes(right.size);
    const bool is_markup = left.is_markup || right.is_markup;  // then the other side is escaped
    if (!is_markup) return Value(runtime.arena.concatenate(left.text(), right.text()));
    return Value(runtime.arena.concatenate(escape(runtime, left).text(), escape(runtime, right).text()), true);
  }
  if (left.is_sequence() && left.kind == right.kind) {
    std::vector<Value> items(left.items().begin(), left.items().end());
    items.insert(items.end(), right.items().begin(), right.items().end());
    runtime.spend(static_cast<std::int64_t>(items.size() / 8));
    return left.is(Kind::list) ? runtime.list(items) : runtime.tuple(items);
  }
  fail_types(BinaryOp::add, left, right);
}

/// A text, list or tuple, so many times.
Value repeat(Runtime& runtime, const Value& value, std::int64_t times) {
  const auto count = static_cast<std::size_t>(std::max<std::int64_t>(times, 0));
  const std::size_t width = value.is_string() ? 1 : sizeof(Value);
  std::size_t size = 0;
  if (__builtin_mul_overflow(count, static_cast<std::size_t>(value.size), &size) || size > UINT32_MAX / width) {
    fail("a text or list repeated {} times is too long", times);
  }
  runtime.spend_bytes(size * width);
  if (value.is_string()) {
    char* target = runtime.arena.allocate_text(size);
    for (std::size_t i = 0; i < count && value.size > 0; ++i) {
      std::copy_n(value.bytes, value.size, target + i * value.size);
    }
    return Value(std::string_view(target, size), value.is_markup);
  }
  auto* target = static_cast<Value*>(runtime.arena.allocate(size * sizeof(Value)));
  for (std::size_t i = 0; i < count && value.size > 0; ++i) {
    std::uninitialized_copy_n(value.elements, value.size, target + i * value.size);
  }
  const std::span<const Value> items(target, size);
  return value.is(Kind::list) ? Value::list(items) : Value::tuple(items);
}

}  // namespace

Value operate(Runtime& runtime, BinaryOp op, const Value& left, const Value& right) {
  if (left.is_number() && right.is_number()) {
    if (left.is_integral() && right.is_integral()) return operate_integers(op, left.as_integer(), right.as_integer());
    return operate_floats(op, left.as_floating(), right.as_floating());
  }
  if (op == BinaryOp::add) return add(runtime, left, right);
  const auto is_repeatable = [](const Value& value) { return value.is_string() || value.is_sequence(); };
  if (op == BinaryOp::multiply && is_repeatable(left) && right.is_integral()) {
    return repeat(runtime, left, right.as_integer());
  }
  if (op == BinaryOp::multiply && is_repeatable(right) && left.is_integral()) {
    return repeat(runtime, right, left.as_integer());
  }
  if (op == BinaryOp::remainder && left.is_string()) return format_percent(runtime, left, right);
  fail_types(op, left, right);
}

Value negate(const Value& value) {
  if (value.is(Kind::undefined)) fail_undefined(value);
  if (value.is(Kind::floating)) return Value(-value.floating);
  if (!value.is_integral()) fail("bad operand type for unary -: '{}'", type_name(value));
  if (value.as_integer() == INT64_MIN) fail_overflow();
  return Value(-value.as_integer());
}

Value make_positive(const Value& value) {
  if (value.is(Kind::undefined)) fail_undefined(value);
  if (value.is(Kind::floating)) return value;
  if (!value.is_integral()) fail("bad operand type for unary +: '{}'", type_name(value));
  return Value(value.as_integer());
}

bool compare(Runtime& runtime, Comparison comparison, const Value& left, const Value& right) {
  switch (comparison) {
    case Comparison::equal: return equals(runtime, left, right);
    case Comparison::not_equal: return !equals(runtime, left, right);
    case Comparison::less: return is_less(runtime, left, right, "<");
    case Comparison::less_equal: return is_less(runtime, left, right, "<=") || equals(runtime, left, right);
    case Comparison::greater: return is_less(runtime, right, left, ">");
    case Comparison::greater_equal: return is_less(runtime, right, left, ">=") || equals(runtime, left, right);
    case Comparison::in: return contains(runtime, right, left);
    case Comparison::not_in: return !contains(runtime, right, left);
  }
  return false;
}

}  // namespace heddle::jinja
