#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "data/jinja/lexer.h"
#include "data/jinja/syntax.h"

namespace heddle::jinja {

/// The expressions of a template, by recursive descent.
class ExpressionParser {
 public:
  ExpressionParser(std::vector<Token> tokens, std::deque<std::string>& texts, Place& place)
      : tokens_(std::move(tokens)), texts_(texts), place_(place) {}

 protected:
  const Token& current() const { return tokens_[at_]; }
  const Token& next() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_[at_]; }
  const Token& look() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  bool skip_op(std::string_view op);
  bool skip_name(std::string_view name);
  const Token& expect(TokenKind kind);
  void expect_op(std::string_view op);
  void expect_name(std::string_view name);
  /// Throws Error for the line of the current token, or that one.
  template <typename... Args>
  [[noreturn]] void fail_here(fmt::format_string<Args...> format, Args&&... args) {
    place_.line = current().line;
    fail(format, std::forward<Args>(args)...);
  }
  template <typename... Args>
  [[noreturn]] void fail_at(int line, fmt::format_string<Args...> format, Args&&... args) {
    place_.line = line;
    fail(format, std::forward<Args>(args)...);
  }

  /// One expression, or a tuple of those that commas separate.
  ExpressionPtr parse_tuple(bool with_choice = true, bool in_parentheses = false);
  ExpressionPtr parse_expression(bool with_choice = true);
  ExpressionPtr parse_filters(ExpressionPtr input, bool starts_inline);
  /// What may stand left of "=": names, tuples of them, and with `with_namespace` members of a namespace.
  ExpressionPtr parse_target(bool with_namespace);
  ExpressionPtr parse_name_target();

  std::deque<std::string>& texts() { return texts_; }

 private:
  /// Jinja's own limit is that of Python's parser: 200 brackets in each other.
  static constexpr int kMaxDepth = 200;

  /// Bounds how deep the parser calls itself.
  class Nesting {
   public:
    explicit Nesting(ExpressionParser& parser) : parser_(parser) {
      if (++parser.depth_ > kMaxDepth) {
        --parser.depth_;
        parser.fail_here("expressions are nested more than {} levels deep", static_cast<int>(kMaxDepth));
      }
    }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    ~Nesting() { --parser_.depth_; }

   private:
    ExpressionParser& parser_;
  };
  ExpressionPtr make(ExpressionKind kind, int line) { return std::make_unique<Expression>(kind, line); }
  ExpressionPtr make(ExpressionKind kind, int line, ExpressionPtr a, ExpressionPtr b = nullptr);
  void add_operand(Expression& parent, ExpressionPtr child);
  void note_depth(Expression& parent, const Expression& child);
  bool at_tuple_end() const;
  template <typename Parse>
  ExpressionPtr parse_elements(Parse&& parse, bool in_parentheses);
  ExpressionPtr parse_choice();
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_compare();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concat();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool with_filter = true);
  ExpressionPtr parse_primary(bool with_namespace = false);
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_postfix(ExpressionPtr node);
  ExpressionPtr parse_filter_expression(ExpressionPtr node);
  ExpressionPtr parse_subscript(ExpressionPtr node);
  ExpressionPtr parse_subscribed(ExpressionPtr node);
  ExpressionPtr parse_call(ExpressionPtr node);
  void parse_arguments(Expression& call);
  ExpressionPtr parse_test(ExpressionPtr node);
  std::string_view parse_dotted_name();
  static bool can_assign(const Expression& target);
  void check_target(const Expression& target);

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  std::deque<std::string>& texts_;
  Place& place_;
  int depth_ = 0;
};

/// A token as an error shows it.
std::string describe(const Token& token);

}  // namespace heddle::jinja
