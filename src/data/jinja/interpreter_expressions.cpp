#include <array>

#include "data/jinja/functions.h"
#include "data/jinja/interpreter.h"
#include "data/jinja/operators.h"
#include "data/jinja/print.h"

namespace heddle::jinja {

/// The arguments of a call, filter or test, evaluated. Few ones need no allocation.
class Interpreter::CallArguments {
 public:
  CallArguments(Interpreter& interpreter, const Expression& call, Frame& frame, const Value* caller) {
    const std::size_t count = call.operands.size() - 1;
    const bool is_plain =
        count <= few_.size() && !call.star && call.keywords.empty() && !call.double_star && caller == nullptr;
    if (is_plain) {
      for (std::size_t i = 0; i < count; ++i) few_[i] = interpreter.evaluate(*call.operands[i + 1], frame);
      positional_ = {few_.data(), count};
      return;
    }
    for (std::size_t i = 0; i < count; ++i) many_.push_back(interpreter.evaluate(*call.operands[i + 1], frame));
    if (call.star) {
      const Value more = interpreter.evaluate(*call.star, frame);
      Cursor cursor(interpreter.runtime_, more);
      for (Value item; cursor.next(interpreter.runtime_, item);) {
        interpreter.runtime_.check_elements(many_.size());
        many_.push_back(item);
      }
    }
    positional_ = many_;
    for (const auto& [name, value] : call.keywords) keywords_.push_back({name, interpreter.evaluate(*value, frame)});
    if (call.double_star) add_keywords(interpreter.evaluate(*call.double_star, frame));
    if (caller != nullptr) keywords_.push_back({"caller", *caller});
  }

  Arguments as(std::string_view callee) const { return Arguments(callee, positional_, keywords_); }

 private:
  void add_keywords(const Value& more) {
    if (!more.is(Kind::dict)) fail("argument after ** must be a mapping, not {}", type_name(more));
    for (const auto& [name, value] : more.dict->entries) {
      if (!name.is_string()) fail("keywords must be strings");
      for (const Keyword& keyword : keywords_) {
        if (keyword.name == name.text()) fail("got multiple values for keyword argument '{}'", keyword.name);
      }
      keywords_.push_back({name.text(), value});
    }
  }

  std::array<Value, 4> few_;
  std::vector<Value> many_;
  std::vector<Keyword> keywords_;
  std::span<const Value> positional_;
};

Value Interpreter::evaluate(const Expression& expression, Frame& frame) {
  switch (expression.kind) {  // what has nothing inside
    case ExpressionKind::constant: return expression.constant;
    case ExpressionKind::name: return evaluate_name(expression, frame);
    case ExpressionKind::captured: return captured_;
    default: break;
  }
  const Runtime::Depth depth(runtime_);
  runtime_.spend(1);
  return evaluate_inner(expression, frame);
}

Value Interpreter::evaluate_inner(const Expression& expression, Frame& frame) {
  const auto operand = [&](std::size_t i) { return evaluate(*expression.operands[i], frame); };
  switch (expression.kind) {
    case ExpressionKind::attribute: return evaluate_attribute(expression, operand(0));
    case ExpressionKind::item: {
      const Value owner = operand(0);
      return item_of(runtime_, owner, operand(1));
    }
    case ExpressionKind::slice: {
      std::array<Value, 4> parts;
      for (std::size_t i = 0; i < parts.size(); ++i) {
        if (expression.operands[i]) parts[i] = operand(i);
      }
      return slice_of(runtime_, parts[0], parts[1], parts[2], parts[3]);
    }
    case ExpressionKind::call: return evaluate_call(expression, frame);
    case ExpressionKind::filter: return evaluate_filter(expression, frame);
    case ExpressionKind::test: return Value(evaluate_test(expression, frame));
    case ExpressionKind::negative: return negate(operand(0));
    case ExpressionKind::positive: return make_positive(operand(0));
    case ExpressionKind::negation: return Value(!is_true(operand(0)));
    case ExpressionKind::conjunction: {
      const Value left = operand(0);
      return is_true(left) ? operand(1) : left;
    }
    case ExpressionKind::disjunction: {
      const Value left = operand(0);
      return is_true(left) ? left : operand(1);
    }
    case ExpressionKind::binary: {
      const Value left = operand(0);
      return operate(runtime_, expression.op, left, operand(1));
    }
    case ExpressionKind::concat: return evaluate_concat(expression, frame);
    case ExpressionKind::compare: return evaluate_compare(expression, frame);
    case ExpressionKind::choice: return evaluate_choice(expression, frame);
    case ExpressionKind::list:
    case ExpressionKind::tuple: {
      std::vector<Value> items;
      items.reserve(expression.operands.size());
      for (const auto& element : expression.operands) items.push_back(evaluate(*element, frame));
      return expression.kind == ExpressionKind::list ? runtime_.list(items) : runtime_.tuple(items);
    }
    case ExpressionKind::dict: {
      DictBuilder dict(runtime_);
      for (std::size_t i = 0; i + 1 < expression.operands.size(); i += 2) {
        const Value key = operand(i);
        dict.set(key, operand(i + 1));
      }
      return dict.finish();
    }
    case ExpressionKind::constant:
    case ExpressionKind::name:
    case ExpressionKind::captured:
    case ExpressionKind::namespace_member: break;
  }
  return {};
}

Value Interpreter::evaluate_name(const Expression& name, Frame& frame) {
  const Value& value = at(frame, name.slot);
  return value.is(Kind::missing) ? runtime_.undefined_variable(name.text) : value;
}

/// As attribute_of(), with the methods of that name looked up beforehand.
Value Interpreter::evaluate_attribute(const Expression& attribute, const Value& owner) {
  if (owner.is(Kind::dict) && attribute.methods.dict == nullptr && !attribute.text.starts_with("__")) {
    const Value* found = find(*owner.dict, attribute.text);
    runtime_.spend(static_cast<std::int64_t>(owner.dict->entries.size() / 16));
    return found != nullptr ? *found : runtime_.undefined_member(owner, Value(attribute.text));
  }
  return attribute_of(runtime_, owner, attribute.text);
}

Value Interpreter::evaluate_compare(const Expression& comparison, Frame& frame) {
  Value left = evaluate(*comparison.operands[0], frame);
  for (std::size_t i = 0; i < comparison.comparisons.size(); ++i) {
    const Value right = evaluate(*comparison.operands[i + 1], frame);
    if (!compare(runtime_, comparison.comparisons[i], left, right)) return Value(false);
    left = right;
  }
  return Value(true);
}

Value Interpreter::evaluate_concat(const Expression& concat, Frame& frame) {
  std::array<Value, 8> few;
  std::vector<Value> many;
  const std::size_t count = concat.operands.size();
  if (count > few.size()) many.resize(count);
  Value* values = count > few.size() ? many.data() : few.data();
  for (std::size_t i = 0; i < count; ++i) values[i] = evaluate(*concat.operands[i], frame);
  std::string_view text;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string_view next = text_of(runtime_, values[i]);
    runtime_.spend_bytes(next.size());
    text = runtime_.arena.concatenate(text, next);
  }
  return Value(text);
}

Value Interpreter::evaluate_choice(const Expression& choice, Frame& frame) {
  if (is_true(evaluate(*choice.operands[1], frame))) return evaluate(*choice.operands[0], frame);
  if (choice.operands[2]) return evaluate(*choice.operands[2], frame);
  return runtime_.undefined(fmt::format(
      "the inline if-expression on line {} evaluated to false and no else section was defined.", choice.line));
}

Value Interpreter::evaluate_call(const Expression& call, Frame& frame, const Value* caller) {
  const Expression& callee = *call.operands[0];
  if (callee.kind == ExpressionKind::attribute) {
    // A method is called without making an object of it first.
    const Value owner = evaluate(*callee.operands[0], frame);
    const Method* method = callee.methods.of(owner);
    if (method != nullptr && method->function != nullptr) {
      const CallArguments arguments(*this, call, frame, caller);
      Arguments passed = arguments.as(method->name);
      return method->function(runtime_, owner, passed);
    }
    const Value function = evaluate_attribute(callee, owner);
    const CallArguments arguments(*this, call, frame, caller);
    Arguments passed = arguments.as(callee.text);
    return call_value(runtime_, function, passed);
  }
  const Value function = evaluate(callee, frame);
  const CallArguments arguments(*this, call, frame, caller);
  Arguments passed = arguments.as(callee.text);
  return call_value(runtime_, function, passed);
}

Value Interpreter::evaluate_filter(const Expression& filter, Frame& frame) {
  if (filter.filter == nullptr) fail("No filter named '{}' found.", filter.text);
  const Value input = evaluate(*filter.operands[0], frame);
  const CallArguments arguments(*this, filter, frame, nullptr);
  Arguments passed = arguments.as(filter.text);
  return filter.filter(runtime_, input, passed);
}

bool Interpreter::evaluate_test(const Expression& test, Frame& frame) {
  if (test.test == nullptr) fail("No test named '{}' found.", test.text);
  const Value input = evaluate(*test.operands[0], frame);
  const CallArguments arguments(*this, test, frame, nullptr);
  Arguments passed = arguments.as(test.text);
  return test.test(runtime_, input, passed);
}

}  // namespace heddle::jinja
