// map, select, reject and their kin: other filters and tests over each element. They do their work when they are read.
#include <optional>
#include <vector>

#include "data/jinja/arguments.h"
#include "data/jinja/attribute_path.h"
#include "data/jinja/builtins.h"
#include "data/jinja/sequences.h"

namespace heddle::jinja {
namespace {

/// What a filter was passed, kept until the generator is read.
struct Passed {
  std::span<const Value> positional;
  std::span<const Keyword> keywords;

  static Passed keep(Runtime& runtime, const Arguments& arguments) {
    return {runtime.arena.copy(arguments.positional), runtime.arena.copy(arguments.keywords)};
  }
  Passed without(std::size_t count) const { return {positional.subspan(std::min(count, positional.size())), keywords}; }
};

/// Goes through the input, unless that is false.
class Source {
 public:
  explicit Source(const Value& input) : input_(input) {}
  bool is_read() const { return is_true(input_); }
  bool next(Runtime& runtime, Value& item) {
    if (!cursor_) {
      if (!is_true(input_)) return false;
      cursor_.emplace(runtime, input_);
    }
    return cursor_->next(runtime, item);
  }

 private:
  Value input_;
  std::optional<Cursor> cursor_;
};

std::string_view name_of(const Value& value, std::string_view what) {
  if (!value.is_string()) fail("No {} named {}.", what, type_name(value));
  return value.text();
}

class Mapped final : public Iterator {
 public:
  Mapped(const Value& input, const Passed& passed) : source_(input), passed_(passed) {}

  bool next(Runtime& runtime, Value& item) override {
    const Arguments all("map", passed_.positional, passed_.keywords);
    const Value* attribute = passed_.positional.empty() ? all.keyword("attribute") : nullptr;
    if (attribute == nullptr && passed_.positional.empty() && source_.is_read()) {
      fail("map requires a filter argument");
    }
    if (!source_.next(runtime, item)) return false;
    const Runtime::Depth depth(runtime);
    if (attribute != nullptr) {
      const Value* otherwise = all.keyword("default");
      if (passed_.keywords.size() > (otherwise != nullptr ? 2 : 1)) fail("Unexpected keyword argument of map");
      item = AttributePath(runtime, *attribute).of(runtime, item, otherwise != nullptr ? *otherwise : Value::missing());
      return true;
    }
    const std::string_view name = name_of(passed_.positional[0], "filter");
    const FilterFunction filter = find_filter(name);
    if (filter == nullptr) fail("No filter named '{}'.", name);
    const Passed rest = passed_.without(1);
    Arguments arguments(name, rest.positional, rest.keywords);
    item = filter(runtime, item, arguments);
    return true;
  }

 private:
  Source source_;
  Passed passed_;
};

class Selected final : public Iterator {
 public:
  Selected(const Value& input, const Passed& passed, bool by_attribute, bool wanted)
      : source_(input), passed_(passed), by_attribute_(by_attribute), wanted_(wanted) {}

  bool next(Runtime& runtime, Value& item) override {
    const Runtime::Depth depth(runtime);
    while (source_.next(runtime, item)) {
      if (holds(runtime, item) == wanted_) return true;
    }
    return false;
  }

 private:
  bool holds(Runtime& runtime, const Value& item) const {
    Value subject = item;
    std::span<const Value> rest = passed_.positional;
    if (by_attribute_) {
      if (rest.empty()) fail("Missing parameter for attribute name");
      subject = AttributePath(runtime, rest[0]).of(runtime, item);
      rest = rest.subspan(1);
    }
    if (rest.empty()) return is_true(subject);
    const std::string_view name = name_of(rest[0], "test");
    const TestFunction test = find_test(name);
    if (test == nullptr) fail("No test named '{}'.", name);
    Arguments arguments(name, rest.subspan(1), passed_.keywords);
    return test(runtime, subject, arguments);
  }

  Source source_;
  Passed passed_;
  bool by_attribute_, wanted_;
};

Value map(Runtime& runtime, const Value& input, Arguments& arguments) {
  return Value(static_cast<Iterator*>(runtime.arena.make<Mapped>(input, Passed::keep(runtime, arguments))));
}

template <bool by_attribute, bool wanted>
Value select(Runtime& runtime, const Value& input, Arguments& arguments) {
  auto* selected = runtime.arena.make<Selected>(input, Passed::keep(runtime, arguments), by_attribute, wanted);
  return Value(static_cast<Iterator*>(selected));
}

constexpr Named<FilterFunction> kFilters[] = {
    {"map", map},
    {"select", select<false, true>},
    {"reject", select<false, false>},
    {"selectattr", select<true, true>},
    {"rejectattr", select<true, false>},
};

}  // namespace

Filters mapping_filters() { return kFilters; }

}  // namespace heddle::jinja
