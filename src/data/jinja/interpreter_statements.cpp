#include <algorithm>
#include <memory>

#include "data/jinja/functions.h"
#include "data/jinja/interpreter.h"
#include "data/jinja/print.h"

namespace heddle::jinja {

class Interpreter::Capture {
 public:
  explicit Capture(Interpreter& interpreter) : interpreter_(interpreter), begin_(interpreter.runtime_.output.size()) {
    if (interpreter_.captures_++ == 0) interpreter_.outermost_ = begin_;
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  ~Capture() {
    interpreter_.runtime_.output.resize(begin_);
    --interpreter_.captures_;
  }
  Value text() const {
    return interpreter_.runtime_.text(std::string_view(interpreter_.runtime_.output).substr(begin_));
  }

 private:
  Interpreter& interpreter_;
  std::size_t begin_;
};

Frame& Interpreter::make_frame(Frame* outer, std::size_t size) {
  auto* values = static_cast<Value*>(runtime_.arena.allocate(size * sizeof(Value)));
  std::uninitialized_fill_n(values, size, Value::missing());
  return *runtime_.arena.make<Frame>(outer, values);
}

Value& Interpreter::at(Frame& frame, Slot slot) {
  Frame* holder = &frame;
  for (std::uint16_t hops = slot.hops; hops > 0; --hops) holder = holder->outer;
  return holder->values[slot.index];
}

Value Interpreter::look_up(std::string_view name) {
  const Value* passed = find(context_, name);
  return passed != nullptr ? *passed : find_global(runtime_, name);
}

void Interpreter::enter(const Scope& scope, Frame& frame) {
  for (const ScopeEntry& entry : scope) {
    Value& value = frame.values[entry.index];
    switch (entry.from) {
      case ScopeEntry::From::nothing: value = Value::missing(); break;
      case ScopeEntry::From::context: value = look_up(entry.name); break;
      case ScopeEntry::From::outer: value = at(frame, entry.outer); break;
      case ScopeEntry::From::outer_or_context:
        value = at(frame, entry.outer);
        if (value.is(Kind::missing)) value = look_up(entry.name);
        break;
    }
  }
}

void Interpreter::run() {
  root_ = &make_frame(nullptr, template_.frame_size);
  enter(template_.scope, *root_);
  run_body(template_.body, *root_);
  runtime_.check_output();
}

Interpreter::Flow Interpreter::run_body(const Body& body, Frame& frame) {
  for (const auto& statement : body) {
    if (statement->kind == StatementKind::text) {
      runtime_.output += statement->text;
      runtime_.spend_bytes(statement->text.size());
      continue;
    }
    runtime_.line = statement->line;
    const Flow flow = run(*statement, frame);
    if (flow != Flow::next) return flow;
  }
  return Flow::next;
}

void Interpreter::print(const Value& value) {
  if (value.is_string()) {
    runtime_.spend_bytes(value.size);
    runtime_.output += value.text();
  } else {
    runtime_.output += text_of(runtime_, value);
  }
  runtime_.check_output();
}

Interpreter::Flow Interpreter::run(const Statement& statement, Frame& frame) {
  const Runtime::Depth depth(runtime_);
  runtime_.spend(1);
  switch (statement.kind) {
    case StatementKind::output:
      for (const auto& value : statement.values) print(evaluate(*value, frame));
      return Flow::next;
    case StatementKind::branch: return run_branch(statement, frame);
    case StatementKind::loop: return run_loop(statement, frame);
    case StatementKind::assign: run_assign(statement, frame); return Flow::next;
    case StatementKind::assign_block:
    case StatementKind::filter_block: return run_captured(statement, frame);
    case StatementKind::macro:
      at(frame, statement.slot) = Value(static_cast<Object*>(runtime_.arena.make<Macro>(*this, statement, frame)));
      return Flow::next;
    case StatementKind::call_block: run_call_block(statement, frame); return Flow::next;
    case StatementKind::with: {
      enter(statement.scope, frame);
      for (std::size_t i = 0; i < statement.targets.size(); ++i) {
        assign(*statement.targets[i], evaluate(*statement.values[i], frame), frame);
      }
      return run_body(statement.body, frame);
    }
    case StatementKind::scope: enter(statement.scope, frame); return run_body(statement.body, frame);
    case StatementKind::block: {
      Frame& own = make_frame(&frame, statement.frame_size);
      enter(statement.scope, own);
      run_body(statement.body, own);
      return Flow::next;
    }
    case StatementKind::generation: run_generation(statement, frame); return Flow::next;
    case StatementKind::break_loop: return Flow::break_loop;
    case StatementKind::continue_loop: return Flow::continue_loop;
    case StatementKind::load: fail("no loader for this environment specified");
    case StatementKind::text: break;
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::run_branch(const Statement& branch, Frame& frame) {
  for (const auto& [condition, body] : branch.branches) {
    runtime_.line = condition->line;
    if (is_true(evaluate(*condition, frame))) return run_body(body, frame);
  }
  return run_body(branch.otherwise, frame);
}

Interpreter::Flow Interpreter::run_loop(const Statement& loop, Frame& frame) {
  const Value elements = evaluate(*loop.value, frame);
  if (!loop.is_recursive) return run_turns(loop, frame, elements, 0);
  print(call_loop(loop, frame, elements, 0));
  return Flow::next;
}

Value Interpreter::call_loop(const Statement& loop, Frame& outer, const Value& elements, std::int64_t depth) {
  const Runtime::Depth guard(runtime_);
  Frame& frame = make_frame(&outer, loop.frame_size);
  const Capture capture(*this);
  run_turns(loop, frame, elements, depth);
  return capture.text();
}

bool Interpreter::takes(const Statement& loop, Frame& frame, const Value& item) {
  assign(*loop.condition_target, item, frame);
  return is_true(evaluate(*loop.condition, frame));
}

Interpreter::Flow Interpreter::run_turns(const Statement& loop, Frame& frame, const Value& all, std::int64_t depth) {
  Value elements = all;
  if (loop.condition) {
    enter(loop.condition_scope, frame);
    auto* filtered = runtime_.arena.make<FilteredElements>(runtime_, *this, loop, frame, all);
    elements = Value(static_cast<Iterator*>(filtered));
  }
  LoopContext* context = nullptr;
  if (loop.uses_loop) {
    Frame& outer = loop.is_recursive ? *frame.outer : frame;
    context = runtime_.arena.make<LoopContext>(runtime_, *this, loop, outer, elements, depth);
    at(frame, loop.slot) = Value(static_cast<Object*>(context));
  }
  Cursor cursor(runtime_, elements);
  bool is_empty = true;
  for (Value item; context != nullptr ? context->next(runtime_, item) : cursor.next(runtime_, item);) {
    assign(*loop.target, item, frame);
    enter(loop.scope, frame);
    const Flow flow = run_body(loop.body, frame);
    if (flow == Flow::break_loop) break;
    if (flow == Flow::next) is_empty = false;  // as Jinja: a turn counts where it comes to its end
    runtime_.line = loop.line;
  }
  if (!is_empty || loop.otherwise.empty()) return Flow::next;
  enter(loop.otherwise_scope, frame);
  return run_body(loop.otherwise, frame);
}

void Interpreter::run_assign(const Statement& statement, Frame& frame) {
  check_namespaces(*statement.target, frame);
  assign(*statement.target, evaluate(*statement.value, frame), frame);
}

void Interpreter::check_namespaces(const Expression& target, Frame& frame) {
  if (target.kind == ExpressionKind::namespace_member) {
    if (as_namespace(at(frame, target.operands[0]->slot)) == nullptr) {
      fail("cannot assign attribute on non-namespace object");
    }
  } else if (target.kind == ExpressionKind::tuple) {
    for (const auto& element : target.operands) check_namespaces(*element, frame);
  }
}

void Interpreter::assign(const Expression& target, const Value& value, Frame& frame) {
  if (target.kind == ExpressionKind::name) {
    at(frame, target.slot) = value;
    return;
  }
  if (target.kind == ExpressionKind::namespace_member) {
    Namespace* owner = as_namespace(at(frame, target.operands[0]->slot));
    if (owner == nullptr) fail("cannot assign attribute on non-namespace object");
    return owner->set(runtime_, target.text, value);
  }
  const std::size_t count = target.operands.size();
  if (!is_iterable(value)) fail("cannot unpack non-iterable {} object", type_name(value));
  const auto parts = unpack(runtime_, value);
  if (parts.size() > count) fail("too many values to unpack (expected {})", count);
  if (parts.size() < count) fail("not enough values to unpack (expected {}, got {})", count, parts.size());
  for (std::size_t i = 0; i < count; ++i) assign(*target.operands[i], parts[i], frame);
}

/// {% set x %} and {% filter f %}: what the body writes goes through the filters to a variable or to the output.
Interpreter::Flow Interpreter::run_captured(const Statement& statement, Frame& frame) {
  enter(statement.scope, frame);
  Value text;
  {
    const Capture capture(*this);
    const Flow flow = run_body(statement.body, frame);
    if (flow != Flow::next) return flow;
    text = capture.text();
  }
  captured_ = text;
  const Value value = evaluate(*statement.value, frame);
  if (statement.kind == StatementKind::filter_block) {
    print(value);
  } else {
    check_namespaces(*statement.target, frame);
    assign(*statement.target, value, frame);
  }
  return Flow::next;
}

void Interpreter::run_call_block(const Statement& call, Frame& frame) {
  const Value caller(static_cast<Object*>(runtime_.arena.make<Macro>(*this, call, frame)));
  const Runtime::Depth depth(runtime_);
  print(evaluate_call(*call.value, frame, &caller));
}

void Interpreter::run_generation(const Statement& generation, Frame& frame) {
  // Where transformers' tracker puts it: behind what the template has written for good.
  const std::size_t begin = captures_ > 0 ? outermost_ : runtime_.output.size();
  enter(generation.scope, frame);
  Value text;
  {
    const Capture capture(*this);
    run_body(generation.body, frame);
    text = capture.text();
  }
  runtime_.generated.emplace_back(begin, begin + text.size);
  print(text);
}

Value Interpreter::call_macro(const Statement& macro, Frame& outer, const Arguments& arguments) {
  const Runtime::Depth guard(runtime_);
  const Signature& signature = *macro.signature;
  Frame& frame = make_frame(&outer, macro.frame_size);
  const std::size_t count = signature.names.size();
  const std::size_t given = std::min(count, arguments.positional.size());
  for (std::size_t i = 0; i < given; ++i) frame.values[signature.indices[i]] = arguments.positional[i];
  if (arguments.positional.size() > count) {
    if (!signature.takes_varargs) fail("macro '{}' takes not more than {} argument(s)", macro.text, count);
  }
  if (signature.takes_varargs) {
    frame.values[signature.varargs] = runtime_.tuple(arguments.positional.subspan(given));
  }
  std::vector<Entry> others;
  Value caller = runtime_.undefined("No caller defined");
  for (const auto& [name, value] : arguments.keywords) {
    const auto at = static_cast<std::size_t>(
        std::find(signature.names.begin() + static_cast<std::ptrdiff_t>(given), signature.names.end(), name) -
        signature.names.begin());
    if (at < count) {
      frame.values[signature.indices[at]] = value;
    } else if (name == "caller" && signature.takes_caller) {
      caller = value.is(Kind::none) ? caller : value;
    } else if (signature.takes_kwargs) {
      others.push_back({Value(name), value});
    } else if (name == "caller") {
      fail("macro '{}' was invoked with two values for the special caller argument. This is most likely a bug.",
           macro.text);
    } else {
      fail("macro '{}' takes no keyword argument '{}'", macro.text, name);
    }
  }
  if (signature.takes_caller) frame.values[signature.caller] = caller;
  if (signature.takes_kwargs) frame.values[signature.kwargs] = runtime_.dict(others);

  const int line = runtime_.line;
  enter(macro.scope, frame);
  const std::size_t first_default = count - signature.defaults.size();
  for (std::size_t i = 0; i < count; ++i) {
    Value& value = frame.values[signature.indices[i]];
    if (!value.is(Kind::missing)) continue;
    if (i >= first_default) {
      value = evaluate(*signature.defaults[i - first_default], frame);
    } else {
      value = runtime_.undefined(fmt::format("parameter '{}' was not provided", signature.names[i]));
    }
  }
  const Capture capture(*this);
  run_body(macro.body, frame);
  runtime_.line = line;
  return capture.text();
}

}  // namespace heddle::jinja
