// What may stand behind a value: members, subscripts, calls, filters and tests.
#include "data/jinja/expression_parser.h"
#include "data/jinja/print.h"

namespace heddle::jinja {

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr node) {
  for (;;) {
    if (current().is_op(".") || current().is_op("[")) {
      node = parse_subscript(std::move(node));
    } else if (current().is_op("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr ExpressionParser::parse_filter_expression(ExpressionPtr node) {
  for (;;) {
    if (current().is_op("|")) {
      node = parse_filters(std::move(node), false);
    } else if (current().is_name("is")) {
      node = parse_test(std::move(node));
    } else if (current().is_op("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr node) {
  const int line = current().line;
  if (skip_op(".")) {
    const Token& token = next();
    if (token.kind == TokenKind::name) {
      node = make(ExpressionKind::attribute, line, std::move(node));
      node->text = token.text;
      node->methods = find_methods(token.text);
      return node;
    }
    if (token.kind != TokenKind::integer) fail_at(token.line, "expected name or number");
    auto index = make(ExpressionKind::constant, token.line);
    index->constant = Value(token.integer);
    return make(ExpressionKind::item, line, std::move(node), std::move(index));
  }
  expect_op("[");
  return parse_subscribed(std::move(node));
}

/// What stands in brackets, and the closing one: an index, a slice, or indices that make a tuple.
ExpressionPtr ExpressionParser::parse_subscribed(ExpressionPtr node) {
  const int line = current().line;
  std::vector<ExpressionPtr> indices;
  while (!current().is_op("]")) {
    if (!indices.empty()) expect_op(",");
    ExpressionPtr first;
    if (!current().is_op(":")) first = parse_expression();
    if (!skip_op(":")) {
      indices.push_back(std::move(first));
      continue;
    }
    if (!indices.empty()) fail_here("a slice cannot be one of several indices");
    auto slice = make(ExpressionKind::slice, line, std::move(node));
    add_operand(*slice, std::move(first));
    const auto at_end = [this] { return current().is_op("]") || current().is_op(",") || current().is_op(":"); };
    add_operand(*slice, at_end() ? nullptr : parse_expression());
    const bool has_step = skip_op(":") && !at_end();
    add_operand(*slice, has_step ? parse_expression() : nullptr);
    expect_op("]");
    return slice;
  }
  expect_op("]");
  ExpressionPtr index;
  if (indices.size() == 1) {
    index = std::move(indices.front());
  } else {
    index = make(ExpressionKind::tuple, line);
    for (auto& one : indices) add_operand(*index, std::move(one));
  }
  node = make(ExpressionKind::item, line, std::move(node), std::move(index));
  return node;
}

ExpressionPtr ExpressionParser::parse_call(ExpressionPtr node) {
  node = make(ExpressionKind::call, current().line, std::move(node));
  parse_arguments(*node);
  return node;
}

void ExpressionParser::parse_arguments(Expression& call) {
  const int line = current().line;
  expect_op("(");
  const std::size_t before = call.operands.size();
  const auto ensure = [&](bool holds) {
    if (!holds) fail_at(line, "invalid syntax for function call expression");
  };
  bool needs_comma = false;
  while (!current().is_op(")")) {
    if (needs_comma) {
      expect_op(",");
      if (current().is_op(")")) break;
    }
    if (skip_op("*")) {
      ensure(!call.star && !call.double_star);
      call.star = parse_expression();
      note_depth(call, *call.star);
    } else if (skip_op("**")) {
      ensure(!call.double_star);
      call.double_star = parse_expression();
      note_depth(call, *call.double_star);
    } else if (current().kind == TokenKind::name && look().is_op("=")) {
      ensure(!call.double_star);
      const std::string_view name = next().text;
      next();
      for (const auto& keyword : call.keywords) {
        if (keyword.name == name) fail_here("keyword argument repeated: {}", name);
      }
      auto value = parse_expression();
      note_depth(call, *value);
      call.keywords.push_back({name, std::move(value)});
    } else {
      ensure(!call.star && !call.double_star && call.keywords.empty());
      add_operand(call, parse_expression());
    }
    needs_comma = true;
  }
  expect_op(")");
  if (call.operands.size() - before > 255) fail_at(line, "more than 255 arguments");
}

std::string_view ExpressionParser::parse_dotted_name() {
  std::string_view name = expect(TokenKind::name).text;
  while (skip_op(".")) {
    std::string& joined = texts_.emplace_back(name);
    joined.append(".").append(expect(TokenKind::name).text);
    name = joined;
  }
  return name;
}

ExpressionPtr ExpressionParser::parse_filters(ExpressionPtr input, bool starts_inline) {
  while (starts_inline || skip_op("|")) {
    starts_inline = false;
    const int line = current().line;
    auto node = make(ExpressionKind::filter, line, std::move(input));
    node->text = parse_dotted_name();
    node->filter = find_filter(node->text);
    if (current().is_op("(")) parse_arguments(*node);
    input = std::move(node);
  }
  return input;
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr node) {
  const int line = next().line;
  const bool is_negated = skip_name("not");
  node = make(ExpressionKind::test, line, std::move(node));
  node->text = parse_dotted_name();
  node->test = find_test(node->text);
  const Token& token = current();
  const bool is_value = token.kind == TokenKind::name || token.kind == TokenKind::string ||
                        token.kind == TokenKind::integer || token.kind == TokenKind::floating || token.is_op("[") ||
                        token.is_op("{");
  if (token.is_op("(")) {
    parse_arguments(*node);
  } else if (is_value && !token.is_name("else") && !token.is_name("or") && !token.is_name("and")) {
    if (token.is_name("is")) fail_here("You cannot chain multiple tests with is");
    const Nesting nesting(*this);
    add_operand(*node, parse_postfix(parse_primary()));
  }
  return is_negated ? make(ExpressionKind::negation, line, std::move(node)) : std::move(node);
}

}  // namespace heddle::jinja
