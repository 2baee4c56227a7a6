// The objects `loop` and macros, as templates see them.
#include "data/jinja/functions.h"
#include "data/jinja/interpreter.h"
#include "data/jinja/print.h"

namespace heddle::jinja {

bool LoopContext::next(Runtime& runtime, Value& item) {
  if (!after_.is(Kind::missing)) {
    item = after_;
    after_ = Value::missing();
  } else if (!cursor_.next(runtime, item)) {
    return false;
  }
  ++index0_;
  before_ = current_;
  current_ = item;
  return true;
}

const Value& LoopContext::peek(Runtime& runtime) {
  if (after_.is(Kind::missing) && !cursor_.next(runtime, after_)) after_ = Value::missing();
  return after_;
}

/// Where the elements have no length, takes them all first.
std::int64_t LoopContext::measure(Runtime& runtime) {
  if (length_ >= 0) return length_;
  length_ = jinja::length(elements_);
  if (length_ < 0) {
    std::vector<Value> rest;
    for (Value item; cursor_.next(runtime, item);) {
      runtime.check_elements(rest.size());
      rest.push_back(item);
    }
    length_ = static_cast<std::int64_t>(rest.size()) + index0_ + 1 + (after_.is(Kind::missing) ? 0 : 1);
    cursor_ = Cursor(runtime, runtime.list(rest));
  }
  return length_;
}

namespace {

/// loop.cycle and loop.changed.
class LoopMethod final : public Object {
 public:
  LoopMethod(LoopContext& loop, bool is_cycle) : loop_(loop), is_cycle_(is_cycle) {}
  std::string_view type_name() const override { return "method"; }
  bool is_callable() const override { return true; }
  Value call(Runtime& runtime, Arguments& arguments) override {
    return is_cycle_ ? loop_.cycle(arguments) : loop_.has_changed(runtime, arguments);
  }

 private:
  LoopContext& loop_;
  bool is_cycle_;
};

}  // namespace

Value LoopContext::cycle(const Arguments& arguments) const {
  if (arguments.positional.empty()) fail("no items for cycling given");
  return arguments.positional[static_cast<std::size_t>(index0_) % arguments.positional.size()];
}

Value LoopContext::has_changed(Runtime& runtime, const Arguments& arguments) {
  const Value now = runtime.tuple(arguments.positional);
  if (equals(runtime, last_changed_, now)) return Value(false);
  last_changed_ = now;
  return Value(true);
}

bool LoopContext::attribute(Runtime& runtime, std::string_view name, Value& value) {
  const auto method = [&](bool is_cycle) {
    return Value(static_cast<Object*>(runtime.arena.make<LoopMethod>(*this, is_cycle)));
  };
  if (name == "index0") return value = Value(index0_), true;
  if (name == "index") return value = Value(index0_ + 1), true;
  if (name == "first") return value = Value(index0_ == 0), true;
  if (name == "last") return value = Value(peek(runtime).is(Kind::missing)), true;
  if (name == "length") return value = Value(measure(runtime)), true;
  if (name == "revindex") return value = Value(measure(runtime) - index0_), true;
  if (name == "revindex0") return value = Value(measure(runtime) - index0_ - 1), true;
  if (name == "depth0") return value = Value(depth0_), true;
  if (name == "depth") return value = Value(depth0_ + 1), true;
  if (name == "previtem") {
    value = index0_ == 0 ? runtime.undefined("there is no previous item") : before_;
    return true;
  }
  if (name == "nextitem") {
    value = peek(runtime);
    if (value.is(Kind::missing)) value = runtime.undefined("there is no next item");
    return true;
  }
  if (name == "cycle") return value = method(true), true;
  if (name == "changed") return value = method(false), true;
  return false;
}

Value LoopContext::call(Runtime&, Arguments& arguments) {
  if (!loop_.is_recursive) fail("The loop must have the 'recursive' marker to be called recursively.");
  const auto [elements] = arguments.bind<1>({"iterable"}, 1);
  return interpreter_.call_loop(loop_, outer_, elements, depth0_ + 1);
}

void LoopContext::append_repr(std::string& out, int) const {
  const std::int64_t length = length_ >= 0 ? length_ : jinja::length(elements_);
  out += fmt::format("<LoopContext {}/{}>", index0_ + 1, length);
}

bool Macro::attribute(Runtime& runtime, std::string_view name, Value& value) {
  const Signature& signature = *definition_.signature;
  if (name == "name") {
    value = definition_.text.empty() ? Value() : Value(definition_.text);
  } else if (name == "arguments") {
    std::vector<Value> names;
    for (const auto parameter : signature.names) names.emplace_back(parameter);
    value = runtime.tuple(names);
  } else if (name == "catch_kwargs") {
    value = Value(signature.takes_kwargs);
  } else if (name == "catch_varargs") {
    value = Value(signature.takes_varargs);
  } else if (name == "caller") {
    value = Value(signature.takes_caller);
  } else {
    return false;
  }
  return true;
}

Value Macro::call(Runtime&, Arguments& arguments) { return interpreter_.call_macro(definition_, outer_, arguments); }

void Macro::append_repr(std::string& out, int) const {
  out += "<Macro ";
  if (definition_.text.empty()) {
    out += "anonymous";
  } else {
    jinja::append_repr(out, definition_.text);
  }
  out += ">";
}

}  // namespace heddle::jinja
