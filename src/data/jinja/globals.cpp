// What every template can call: range, dict, namespace, cycler, joiner, lipsum's absence, raise_exception,
// strftime_now.
#include <array>
#include <charconv>
#include <cstdlib>
#include <ctime>

#include "data/jinja/functions.h"
#include "data/jinja/print.h"
#include "data/jinja/sequences.h"

namespace heddle::jinja {

bool Namespace::attribute(Runtime&, std::string_view name, Value& value) {
  const Member* member = find(name);
  if (member == nullptr) return false;
  value = member->value;
  return true;
}

Member* Namespace::find(std::string_view name) const {
  for (Member* member = first_; member != nullptr; member = member->next) {
    if (member->name == name) return member;
  }
  return nullptr;
}

void Namespace::set(Runtime& runtime, std::string_view name, const Value& value) {
  if (name.starts_with('_')) {
    fail(
        "Chat templates cannot store underscore-prefixed attributes on a namespace, but got {}. Please rename the "
        "attribute.",
        repr(Value(name)));
  }
  if (Member* member = find(name)) {
    member->value = value;
    return;
  }
  auto* member = runtime.arena.make<Member>(name, value, nullptr);
  (last_ != nullptr ? last_->next : first_) = member;
  last_ = member;
}

void Namespace::append_repr(std::string& out, int depth) const {
  out += "<Namespace {";
  for (const Member* member = first_; member != nullptr; member = member->next) {
    if (member != first_) out += ", ";
    jinja::append_repr(out, member->name);
    out += ": ";
    jinja::append_repr(out, member->value, depth + 1);
  }
  out += "}>";
}

Namespace* as_namespace(const Value& value) {
  return value.is(Kind::object) ? dynamic_cast<Namespace*>(value.object) : nullptr;
}

namespace {

constexpr std::int64_t kMaxRange = 100'000;

Value call_range(Runtime& runtime, Arguments& arguments) {
  if (!arguments.keywords.empty()) fail("range() takes no keyword arguments");
  const auto [first, second, third] = arguments.bind<3>({"start", "stop", "step"}, 1);
  Range range{0, integer_of(first), 1};
  if (!second.is(Kind::missing)) range = {range.stop, integer_of(second), 1};
  if (!third.is(Kind::missing)) range.step = integer_of(third);
  if (range.step == 0) fail("range() arg 3 must not be zero");
  if (range.size() > kMaxRange) {
    fail("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).", kMaxRange);
  }
  return Value(runtime.arena.make<Range>(range));
}

Value make_dict(Runtime& runtime, const Arguments& arguments) {
  if (arguments.positional.size() > 1) fail("dict expected at most 1 argument, got {}", arguments.positional.size());
  DictBuilder dict(runtime);
  if (!arguments.positional.empty()) dict.set_from(arguments.positional[0]);
  for (const auto& [name, value] : arguments.keywords) dict.set(Value(name), value);
  return dict.finish();
}

Value call_namespace(Runtime& runtime, Arguments& arguments) {
  auto* result = runtime.arena.make<Namespace>();
  for (const auto& [key, value] : make_dict(runtime, arguments).dict->entries) {
    if (key.is_string()) result->set(runtime, key.text(), value);
  }
  return Value(static_cast<Object*>(result));
}

Value dict_fromkeys(Runtime& runtime, Arguments& arguments) {
  const auto [keys, value] = arguments.bind<2>({"iterable", "value"}, 1);
  DictBuilder dict(runtime);
  Cursor cursor(runtime, keys);
  for (Value key; cursor.next(runtime, key);) dict.set(key, value.is(Kind::missing) ? Value() : value);
  return dict.finish();
}

/// dict: callable, with fromkeys.
class DictType final : public Object {
 public:
  std::string_view type_name() const override { return "TemplateDict"; }
  bool is_callable() const override { return true; }
  Value call(Runtime& runtime, Arguments& arguments) override { return make_dict(runtime, arguments); }
  bool attribute(Runtime& runtime, std::string_view name, Value& value) override {
    if (name != "fromkeys") return false;
    value = Value(static_cast<Object*>(runtime.arena.make<Function>("fromkeys", dict_fromkeys)));
    return true;
  }
};

/// cycler('a', 'b'): next(), current, reset().
class Cycler final : public Object {
 public:
  explicit Cycler(std::span<const Value> items) : items_(items) {}
  std::string_view type_name() const override { return "jinja2.utils.Cycler"; }
  bool attribute(Runtime& runtime, std::string_view name, Value& value) override;
  Value advance() {
    const Value item = items_[at_];
    at_ = (at_ + 1) % items_.size();
    return item;
  }
  void reset() { at_ = 0; }

 private:
  std::span<const Value> items_;
  std::size_t at_ = 0;
};

class CyclerMethod final : public Object {
 public:
  CyclerMethod(Cycler& cycler, bool is_next) : cycler_(cycler), is_next_(is_next) {}
  std::string_view type_name() const override { return "method"; }
  bool is_callable() const override { return true; }
  Value call(Runtime&, Arguments& arguments) override {
    arguments.expect_none();
    if (is_next_) return cycler_.advance();
    cycler_.reset();
    return {};
  }

 private:
  Cycler& cycler_;
  bool is_next_;
};

bool Cycler::attribute(Runtime& runtime, std::string_view name, Value& value) {
  if (name == "current") {
    value = items_[at_];
  } else if (name == "pos") {
    value = Value(at_);
  } else if (name == "items") {
    value = Value::tuple(items_);
  } else if (name == "next" || name == "reset") {
    value = Value(static_cast<Object*>(runtime.arena.make<CyclerMethod>(*this, name == "next")));
  } else {
    return false;
  }
  return true;
}

Value call_cycler(Runtime& runtime, Arguments& arguments) {
  if (!arguments.keywords.empty()) fail("cycler() takes no keyword arguments");
  if (arguments.positional.empty()) fail("at least one item has to be provided");
  return Value(static_cast<Object*>(runtime.arena.make<Cycler>(runtime.arena.copy(arguments.positional))));
}

/// joiner(', '): the separator, but nothing the first time.
class Joiner final : public Object {
 public:
  explicit Joiner(const Value& separator) : separator_(separator) {}
  std::string_view type_name() const override { return "jinja2.utils.Joiner"; }
  bool is_callable() const override { return true; }
  bool attribute(Runtime&, std::string_view name, Value& value) override {
    if (name != "sep" && name != "used") return false;
    value = name == "sep" ? separator_ : Value(is_used_);
    return true;
  }
  Value call(Runtime&, Arguments& arguments) override {
    arguments.expect_none();
    if (is_used_) return separator_;
    is_used_ = true;
    return Value(std::string_view());
  }

 private:
  Value separator_;
  bool is_used_ = false;
};

Value call_joiner(Runtime& runtime, Arguments& arguments) {
  const auto [separator] = arguments.bind<1>({"sep"}, 0);
  return Value(static_cast<Object*>(
      runtime.arena.make<Joiner>(separator.is(Kind::missing) ? Value(std::string_view(", ")) : separator)));
}

Value call_raise_exception(Runtime&, Arguments& arguments) {
  const auto [message] = arguments.bind<1>({"message"}, 1);
  std::string text;
  append_text(text, message);
  throw Error(text);
}

/// The clock, or SOURCE_DATE_EPOCH where that is set.
std::time_t current_time() {
  const char* fixed = std::getenv("SOURCE_DATE_EPOCH");
  if (fixed == nullptr || *fixed == '\0') return std::time(nullptr);
  const std::string_view text(fixed);
  std::int64_t seconds = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size()) {
    fail("SOURCE_DATE_EPOCH is '{}'; expected seconds since 1970", text);
  }
  return static_cast<std::time_t>(seconds);
}

Value call_strftime_now(Runtime& runtime, Arguments& arguments) {
  const auto [format] = arguments.bind<1>({"format"}, 1);
  if (string_of(format, "strftime() argument 1").size() > 1000) fail("the format of strftime_now is too long");
  std::string wanted(format.text());
  // %f, microseconds, is Python's own; the clock here has whole seconds.
  for (std::size_t at = 0; (at = wanted.find('%', at)) != std::string::npos; at += 2) {
    if (wanted.compare(at, 2, "%f") == 0) wanted.replace(at, 2, "000000");
  }
  if (wanted.empty()) return Value(std::string_view());
  const std::time_t now = current_time();
  std::tm parts{};
  if (localtime_r(&now, &parts) == nullptr) fail("the time {} has no date", static_cast<std::int64_t>(now));
  std::string text(wanted.size() * 8 + 256, '\0');
  text.resize(std::strftime(text.data(), text.size(), wanted.c_str(), &parts));
  return runtime.text(text);
}

}  // namespace

Value find_global(Runtime& runtime, std::string_view name) {
  constexpr Named<Function::Body> kFunctions[] = {
      {"range", call_range},
      {"namespace", call_namespace},
      {"cycler", call_cycler},
      {"joiner", call_joiner},
      {"raise_exception", call_raise_exception},
      {"strftime_now", call_strftime_now},
  };
  for (const auto& [known, body] : kFunctions) {
    if (known == name) return Value(static_cast<Object*>(runtime.arena.make<Function>(known, body)));
  }
  if (name == "dict") return Value(static_cast<Object*>(runtime.arena.make<DictType>()));
  return Value::missing();
}

}  // namespace heddle::jinja
