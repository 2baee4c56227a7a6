#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "data/jinja/arguments.h"
#include "data/jinja/runtime.h"
#include "data/jinja/scopes.h"
#include "data/jinja/sequences.h"
#include "data/jinja/syntax.h"

namespace heddle::jinja {

/// The variables of a function that runs, and those of the function it was made in.
struct Frame {
  Frame* outer;
  Value* values;
};

class LoopContext;

/// Runs the statements of a template once.
class Interpreter {
 public:
  /// `context` has the variables that the caller passes.
  Interpreter(Runtime& runtime, const ResolvedTemplate& resolved, const Dict& context)
      : runtime_(runtime), template_(resolved), context_(context) {}

  void run();

  /// A macro's or call block's text; `caller` is what its call block passes, or missing.
  Value call_macro(const Statement& macro, Frame& outer, const Arguments& arguments);
  /// The body of a recursive loop over other elements.
  Value call_loop(const Statement& loop, Frame& outer, const Value& elements, std::int64_t depth);
  /// Whether a loop's condition takes an element.
  bool takes(const Statement& loop, Frame& frame, const Value& item);

 private:
  enum class Flow : std::uint8_t { next, break_loop, continue_loop };
  /// Text that goes to a value, not to the output, for its lifetime.
  class Capture;

  Frame& make_frame(Frame* outer, std::size_t size);
  static Value& at(Frame& frame, Slot slot);
  void enter(const Scope& scope, Frame& frame);
  Value look_up(std::string_view name);

  // Statements: interpreter_statements.cpp
  Flow run_body(const Body& body, Frame& frame);
  Flow run(const Statement& statement, Frame& frame);
  Flow run_branch(const Statement& branch, Frame& frame);
  Flow run_loop(const Statement& loop, Frame& frame);
  Flow run_turns(const Statement& loop, Frame& frame, const Value& elements, std::int64_t depth);
  void run_call_block(const Statement& call, Frame& frame);
  Flow run_captured(const Statement& statement, Frame& frame);
  void run_generation(const Statement& generation, Frame& frame);
  void run_assign(const Statement& assign, Frame& frame);
  void assign(const Expression& target, const Value& value, Frame& frame);
  void check_namespaces(const Expression& target, Frame& frame);
  void print(const Value& value);

  // Expressions: interpreter_expressions.cpp
  Value evaluate(const Expression& expression, Frame& frame);
  Value evaluate_inner(const Expression& expression, Frame& frame);
  Value evaluate_name(const Expression& name, Frame& frame);
  Value evaluate_attribute(const Expression& attribute, const Value& owner);
  Value evaluate_compare(const Expression& compare, Frame& frame);
  Value evaluate_concat(const Expression& concat, Frame& frame);
  Value evaluate_choice(const Expression& choice, Frame& frame);
  Value evaluate_call(const Expression& call, Frame& frame, const Value* caller = nullptr);
  Value evaluate_filter(const Expression& filter, Frame& frame);
  bool evaluate_test(const Expression& test, Frame& frame);
  class CallArguments;

  Runtime& runtime_;
  const ResolvedTemplate& template_;
  const Dict& context_;
  Frame* root_ = nullptr;
  Value captured_;                            // what `captured` stands for
  std::size_t captures_ = 0, outermost_ = 0;  // how many captures there are, and where the outermost begins
};

/// A macro, or the body of a call block as `caller`.
class Macro final : public Object {
 public:
  Macro(Interpreter& interpreter, const Statement& definition, Frame& outer)
      : interpreter_(interpreter), definition_(definition), outer_(outer) {}
  std::string_view type_name() const override { return "jinja2.runtime.Macro"; }
  bool is_callable() const override { return true; }
  bool attribute(Runtime& runtime, std::string_view name, Value& value) override;
  Value call(Runtime& runtime, Arguments& arguments) override;
  void append_repr(std::string& out, int depth) const override;

 private:
  Interpreter& interpreter_;
  const Statement& definition_;
  Frame& outer_;
};

/// The variable `loop`. Elements are taken ahead only where something asks for them, as their condition may depend on
/// what the body does.
class LoopContext final : public Object {
 public:
  LoopContext(Runtime& runtime, Interpreter& interpreter, const Statement& loop, Frame& outer, const Value& elements,
              std::int64_t depth)
      : interpreter_(interpreter),
        loop_(loop),
        outer_(outer),
        elements_(elements),
        cursor_(runtime, elements),
        depth0_(depth) {}

  /// The next element, or false at the end.
  bool next(Runtime& runtime, Value& item);
  std::string_view type_name() const override { return "jinja2.runtime.LoopContext"; }
  bool is_callable() const override { return true; }
  bool attribute(Runtime& runtime, std::string_view name, Value& value) override;
  Value call(Runtime& runtime, Arguments& arguments) override;
  void append_repr(std::string& out, int depth) const override;
  Value cycle(const Arguments& arguments) const;
  Value has_changed(Runtime& runtime, const Arguments& arguments);

 private:
  const Value& peek(Runtime& runtime);
  std::int64_t measure(Runtime& runtime);

  Interpreter& interpreter_;
  const Statement& loop_;
  Frame& outer_;
  Value elements_;
  Cursor cursor_;
  std::int64_t depth0_, index0_ = -1, length_ = -1;
  Value after_ = Value::missing(), current_ = Value::missing(), before_ = Value::missing();
  Value last_changed_ = Value::missing();
};

/// The elements that a loop's condition takes.
class FilteredElements final : public Iterator {
 public:
  FilteredElements(Runtime& runtime, Interpreter& interpreter, const Statement& loop, Frame& frame,
                   const Value& elements)
      : interpreter_(interpreter), loop_(loop), frame_(frame), cursor_(runtime, elements) {}
  bool next(Runtime& runtime, Value& item) override {
    while (cursor_.next(runtime, item)) {
      if (interpreter_.takes(loop_, frame_, item)) return true;
    }
    return false;
  }

 private:
  Interpreter& interpreter_;
  const Statement& loop_;
  Frame& frame_;
  Cursor cursor_;
};

}  // namespace heddle::jinja
