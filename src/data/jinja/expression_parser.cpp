#include "data/jinja/expression_parser.h"

#include <iterator>
#include <optional>

#include "data/jinja/print.h"

namespace heddle::jinja {
std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::data: return "template data / text";
    case TokenKind::variable_begin: return "begin of print statement";
    case TokenKind::variable_end: return "end of print statement";
    case TokenKind::block_begin: return "begin of statement block";
    case TokenKind::block_end: return "end of statement block";
    case TokenKind::string: return "string";
    case TokenKind::integer: return "integer";
    case TokenKind::floating: return "float";
    case TokenKind::end: return "end of template";
    case TokenKind::name:
    case TokenKind::op: return std::string(token.text);
  }
  return "";
}

bool ExpressionParser::skip_op(std::string_view op) {
  if (!current().is_op(op)) return false;
  next();
  return true;
}

bool ExpressionParser::skip_name(std::string_view name) {
  if (!current().is_name(name)) return false;
  next();
  return true;
}

const Token& ExpressionParser::expect(TokenKind kind) {
  if (current().kind != kind) {
    Token wanted;
    wanted.kind = kind;
    const std::string what = kind == TokenKind::name ? "name" : describe(wanted);
    if (current().kind == TokenKind::end) fail_here("unexpected end of template, expected '{}'.", what);
    fail_here("expected token '{}', got {}", what, repr(Value(std::string_view(describe(current())))));
  }
  return next();
}

void ExpressionParser::expect_op(std::string_view op) {
  if (skip_op(op)) return;
  if (current().kind == TokenKind::end) fail_here("unexpected end of template, expected '{}'.", op);
  fail_here("expected token '{}', got {}", op, repr(Value(std::string_view(describe(current())))));
}

void ExpressionParser::expect_name(std::string_view name) {
  if (skip_name(name)) return;
  if (current().kind == TokenKind::end) fail_here("unexpected end of template, expected '{}'.", name);
  fail_here("expected token '{}', got {}", name, repr(Value(std::string_view(describe(current())))));
}

void ExpressionParser::note_depth(Expression& parent, const Expression& child) {
  if (child.depth >= kMaxDepth)
    fail_at(child.line, "expressions are nested more than {} levels deep", static_cast<int>(kMaxDepth));
  parent.depth = std::max<std::uint16_t>(parent.depth, static_cast<std::uint16_t>(child.depth + 1));
}

void ExpressionParser::add_operand(Expression& parent, ExpressionPtr child) {
  if (child) note_depth(parent, *child);
  parent.operands.push_back(std::move(child));
}

ExpressionPtr ExpressionParser::make(ExpressionKind kind, int line, ExpressionPtr a, ExpressionPtr b) {
  auto node = make(kind, line);
  add_operand(*node, std::move(a));
  if (b) add_operand(*node, std::move(b));
  return node;
}

bool ExpressionParser::at_tuple_end() const {
  return current().kind == TokenKind::variable_end || current().kind == TokenKind::block_end || current().is_op(")");
}

template <typename Parse>
ExpressionPtr ExpressionParser::parse_elements(Parse&& parse, bool in_parentheses) {
  const int line = current().line;
  std::vector<ExpressionPtr> elements;
  bool is_tuple = false;
  for (;;) {
    if (!elements.empty()) expect_op(",");
    if (at_tuple_end()) break;
    elements.push_back(parse());
    if (!current().is_op(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!elements.empty()) return std::move(elements.front());
    if (!in_parentheses) {
      fail_here("Expected an expression, got {}", repr(Value(std::string_view(describe(current())))));
    }
  }
  auto node = make(ExpressionKind::tuple, line);
  for (auto& element : elements) add_operand(*node, std::move(element));
  return node;
}

ExpressionPtr ExpressionParser::parse_tuple(bool with_choice, bool in_parentheses) {
  return parse_elements([&] { return parse_expression(with_choice); }, in_parentheses);
}

bool ExpressionParser::can_assign(const Expression& target) {
  constexpr std::string_view kConstants[] = {"true", "false", "none", "True", "False", "None"};
  switch (target.kind) {
    case ExpressionKind::namespace_member: return true;
    case ExpressionKind::name:
      return std::find(std::begin(kConstants), std::end(kConstants), target.text) == std::end(kConstants);
    case ExpressionKind::tuple:
      return std::all_of(target.operands.begin(), target.operands.end(), [](const auto& e) { return can_assign(*e); });
    default: return false;
  }
}

void ExpressionParser::check_target(const Expression& target) {
  if (can_assign(target)) return;
  const std::string_view name = target.kind == ExpressionKind::name       ? "name"
                                : target.kind == ExpressionKind::constant ? "const"
                                : target.kind == ExpressionKind::tuple    ? "tuple"
                                : target.kind == ExpressionKind::list     ? "list"
                                : target.kind == ExpressionKind::dict     ? "dict"
                                                                          : "expression";
  fail_at(target.line, "can't assign to '{}'", name);
}

ExpressionPtr ExpressionParser::parse_target(bool with_namespace) {
  auto target = parse_elements([&] { return parse_primary(with_namespace); }, false);
  check_target(*target);
  return target;
}

ExpressionPtr ExpressionParser::parse_name_target() {
  const Token& token = expect(TokenKind::name);
  auto target = make(ExpressionKind::name, token.line);
  target->text = token.text;
  check_target(*target);
  return target;
}

ExpressionPtr ExpressionParser::parse_expression(bool with_choice) {
  const Nesting nesting(*this);
  return with_choice ? parse_choice() : parse_or();
}

ExpressionPtr ExpressionParser::parse_choice() {
  int line = current().line;
  auto value = parse_or();
  while (skip_name("if")) {
    auto condition = parse_or();
    ExpressionPtr otherwise;
    if (skip_name("else")) {
      const Nesting nesting(*this);
      otherwise = parse_choice();
    }
    auto node = make(ExpressionKind::choice, line, std::move(value), std::move(condition));
    add_operand(*node, std::move(otherwise));
    value = std::move(node);
    line = current().line;
  }
  return value;
}

ExpressionPtr ExpressionParser::parse_or() {
  int line = current().line;
  auto left = parse_and();
  while (skip_name("or")) {
    auto right = parse_and();
    left = make(ExpressionKind::disjunction, line, std::move(left), std::move(right));
    line = current().line;
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_and() {
  int line = current().line;
  auto left = parse_not();
  while (skip_name("and")) {
    auto right = parse_not();
    left = make(ExpressionKind::conjunction, line, std::move(left), std::move(right));
    line = current().line;
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_not() {
  if (!current().is_name("not")) return parse_compare();
  const Nesting nesting(*this);
  const int line = next().line;
  return make(ExpressionKind::negation, line, parse_not());
}

ExpressionPtr ExpressionParser::parse_compare() {
  const int line = current().line;
  auto first = parse_sum();
  ExpressionPtr node;
  const auto comparison = [this]() -> std::optional<Comparison> {
    constexpr std::pair<std::string_view, Comparison> kSigns[] = {
        {"==", Comparison::equal},      {"!=", Comparison::not_equal}, {"<", Comparison::less},
        {"<=", Comparison::less_equal}, {">", Comparison::greater},    {">=", Comparison::greater_equal}};
    for (const auto& [sign, meaning] : kSigns) {
      if (skip_op(sign)) return meaning;
    }
    if (skip_name("in")) return Comparison::in;
    if (!current().is_name("not") || !look().is_name("in")) return std::nullopt;
    next();
    next();
    return Comparison::not_in;
  };
  while (const auto sign = comparison()) {
    if (!node) node = make(ExpressionKind::compare, line, std::move(first));
    node->comparisons.push_back(*sign);
    add_operand(*node, parse_sum());
  }
  return node ? std::move(node) : std::move(first);
}

ExpressionPtr ExpressionParser::parse_sum() {
  int line = current().line;
  auto left = parse_concat();
  while (current().is_op("+") || current().is_op("-")) {
    const auto op = next().text == "+" ? BinaryOp::add : BinaryOp::subtract;
    auto right = parse_concat();
    left = make(ExpressionKind::binary, line, std::move(left), std::move(right));
    left->op = op;
    line = current().line;
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_concat() {
  const int line = current().line;
  auto first = parse_product();
  if (!current().is_op("~")) return first;
  auto node = make(ExpressionKind::concat, line, std::move(first));
  while (skip_op("~")) add_operand(*node, parse_product());
  return node;
}

ExpressionPtr ExpressionParser::parse_product() {
  int line = current().line;
  auto left = parse_power();
  const auto op = [this]() -> std::optional<BinaryOp> {
    if (skip_op("*")) return BinaryOp::multiply;
    if (skip_op("/")) return BinaryOp::divide;
    if (skip_op("//")) return BinaryOp::floor_divide;
    if (skip_op("%")) return BinaryOp::remainder;
    return std::nullopt;
  };
  while (const auto sign = op()) {
    auto right = parse_power();
    left = make(ExpressionKind::binary, line, std::move(left), std::move(right));
    left->op = *sign;
    line = current().line;
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_power() {
  int line = current().line;
  auto left = parse_unary();
  while (skip_op("**")) {
    auto right = parse_unary();
    left = make(ExpressionKind::binary, line, std::move(left), std::move(right));
    left->op = BinaryOp::power;
    line = current().line;
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_unary(bool with_filter) {
  const Nesting nesting(*this);
  const int line = current().line;
  ExpressionPtr node;
  if (skip_op("-")) {
    node = make(ExpressionKind::negative, line, parse_unary(false));
  } else if (skip_op("+")) {
    node = make(ExpressionKind::positive, line, parse_unary(false));
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  return with_filter ? parse_filter_expression(std::move(node)) : std::move(node);
}

ExpressionPtr ExpressionParser::parse_primary(bool with_namespace) {
  const Token& token = current();
  const auto constant = [&](const Value& value) {
    auto node = make(ExpressionKind::constant, token.line);
    node->constant = value;
    next();
    return node;
  };
  switch (token.kind) {
    case TokenKind::name: {
      if (token.text == "true" || token.text == "True") return constant(Value(true));
      if (token.text == "false" || token.text == "False") return constant(Value(false));
      if (token.text == "none" || token.text == "None") return constant(Value());
      next();
      auto node = make(ExpressionKind::name, token.line);
      node->text = token.text;
      if (with_namespace && skip_op(".")) {
        node = make(ExpressionKind::namespace_member, token.line, std::move(node));
        node->text = expect(TokenKind::name).text;
      }
      return node;
    }
    case TokenKind::string: {
      if (look().kind != TokenKind::string) return constant(Value(token.text));
      std::string& joined = texts_.emplace_back();
      while (current().kind == TokenKind::string) joined += next().text;
      auto node = make(ExpressionKind::constant, token.line);
      node->constant = Value(std::string_view(joined));
      return node;
    }
    case TokenKind::integer: return constant(Value(token.integer));
    case TokenKind::floating: return constant(Value(token.floating));
    default: break;
  }
  if (skip_op("(")) {
    const Nesting nesting(*this);
    // Targets in parentheses are read by the same rule, and checked afterwards.
    auto node = parse_tuple(true, true);
    expect_op(")");
    return node;
  }
  if (token.is_op("[")) return parse_list();
  if (token.is_op("{")) return parse_dict();
  fail_here("unexpected {}", repr(Value(std::string_view(describe(token)))));
}

ExpressionPtr ExpressionParser::parse_list() {
  auto node = make(ExpressionKind::list, current().line);
  expect_op("[");
  while (!current().is_op("]")) {
    if (!node->operands.empty()) expect_op(",");
    if (current().is_op("]")) break;
    add_operand(*node, parse_expression());
  }
  expect_op("]");
  return node;
}

ExpressionPtr ExpressionParser::parse_dict() {
  auto node = make(ExpressionKind::dict, current().line);
  expect_op("{");
  while (!current().is_op("}")) {
    if (!node->operands.empty()) expect_op(",");
    if (current().is_op("}")) break;
    add_operand(*node, parse_expression());
    expect_op(":");
    add_operand(*node, parse_expression());
  }
  expect_op("}");
  return node;
}

}  // namespace heddle::jinja
