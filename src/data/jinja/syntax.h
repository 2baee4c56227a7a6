#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/jinja/builtins.h"
#include "data/jinja/value.h"

/// The tree of a template. Texts lie in the template's source or beside it.
namespace heddle::jinja {

/// A variable: which enclosing function's frame holds it (0: this one's), and where.
struct Slot {
  std::uint16_t hops = 0, index = 0;
};

enum class ExpressionKind : std::uint8_t {
  constant,
  name,
  namespace_member,  // in an assignment: text is the member, operands[0] the namespace's name
  captured,          // what a filter block or set block has written
  list,
  tuple,
  dict,       // operands: key, value, key, value, ...
  attribute,  // operands[0].text
  item,       // operands[0][operands[1]]
  slice,      // operands[0][operands[1]:operands[2]:operands[3]]; null where left out
  call,       // operands[0](operands[1], ...)
  filter,     // operands[0] | text(operands[1], ...)
  test,       // operands[0] is text(operands[1], ...)
  negative,
  positive,
  negation,
  conjunction,
  disjunction,
  binary,   // `op`
  concat,   // a ~ b ~ c
  compare,  // operands[0] comparisons[0] operands[1] comparisons[1] operands[2] ...
  choice,   // operands[0] if operands[1] else operands[2], which may be null
};

enum class BinaryOp : std::uint8_t { add, subtract, multiply, divide, floor_divide, remainder, power };
enum class Comparison : std::uint8_t { equal, not_equal, less, less_equal, greater, greater_equal, in, not_in };

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct NamedExpression {
  std::string_view name;
  ExpressionPtr value;
};

struct Expression {
  Expression(ExpressionKind k, int l) : kind(k), line(l) {}

  ExpressionKind kind;
  BinaryOp op = BinaryOp::add;
  std::uint16_t depth = 1;  // of this tree
  Slot slot;                // of a name
  int line;
  std::string_view text;
  Value constant;
  std::vector<ExpressionPtr> operands;
  std::vector<Comparison> comparisons;
  std::vector<NamedExpression> keywords;  // of a call, filter or test
  ExpressionPtr star, double_star;
  FilterFunction filter = nullptr;  // null: there is none of that name
  TestFunction test = nullptr;
  MethodsOfName methods;  // of an attribute
};

struct Statement;
using StatementPtr = std::unique_ptr<Statement>;
using Body = std::vector<StatementPtr>;

enum class StatementKind : std::uint8_t {
  text,
  output,
  loop,
  branch,
  assign,
  assign_block,
  macro,
  call_block,
  filter_block,
  with,
  scope,  // autoescape false
  block,
  generation,
  break_loop,
  continue_loop,
  load,  // include, import, extends: there is nothing to load from
};

/// How a scope's variables begin.
struct ScopeEntry {
  enum class From : std::uint8_t { nothing, context, outer, outer_or_context } from = From::nothing;
  std::uint16_t index = 0;  // in this function's frame
  Slot outer;
  std::string_view name;  // in the context
};
using Scope = std::vector<ScopeEntry>;

struct Branch {
  ExpressionPtr condition;
  Body body;
};

/// A macro's or call block's parameters. Defaults belong to the last ones.
struct Signature {
  std::vector<std::string_view> names;
  std::vector<std::uint16_t> indices;
  std::vector<ExpressionPtr> defaults;
  bool takes_caller = false, takes_kwargs = false, takes_varargs = false;
  std::uint16_t caller = 0, kwargs = 0, varargs = 0;
};

struct Statement {
  Statement(StatementKind k, int l) : kind(k), line(l) {}

  StatementKind kind;
  bool is_recursive = false, uses_loop = false, is_scoped = false;
  int line;
  std::string_view text;                       // of text; the name of a macro or block
  ExpressionPtr target;                        // of an assignment or loop
  ExpressionPtr value;                         // what is assigned, looped over, called or filtered
  ExpressionPtr condition;                     // of a loop
  std::vector<ExpressionPtr> targets, values;  // of with; values: of output
  std::vector<Branch> branches;                // of if and its elifs
  Body body, otherwise;
  std::unique_ptr<Signature> signature;
  Scope scope, otherwise_scope, condition_scope;
  ExpressionPtr condition_target;  // the loop's target as the condition sees it
  Slot slot;                       // of a macro's name, or of `loop`
  std::uint16_t frame_size = 0;    // where the body is a function of its own
};

}  // namespace heddle::jinja
