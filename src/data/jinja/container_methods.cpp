// The methods of Python's list, tuple and dict that change nothing; those that do are named, to be refused.
#include <algorithm>

#include "data/jinja/arguments.h"
#include "data/jinja/builtins.h"
#include "data/jinja/sequences.h"

namespace heddle::jinja {
namespace {

Value index(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto [wanted, start, end] = arguments.bind<3>({"value", "start", "stop"}, 1);
  const std::int64_t size = self.size;
  const auto place = [size](std::int64_t at) {
    return std::clamp<std::int64_t>(at < 0 ? std::max(at, -size) + size : at, 0, size);
  };
  const std::int64_t last = end.is(Kind::missing) ? size : place(integer_of(end));
  for (std::int64_t i = start.is(Kind::missing) ? 0 : place(integer_of(start)); i < last; ++i) {
    if (is_same(self.elements[i], wanted) || equals(runtime, self.elements[i], wanted)) return Value(i);
  }
  fail("{}.index(x): x not in {}", type_name(self), type_name(self));
}

Value count(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto [wanted] = arguments.bind<1>({"value"}, 1);
  std::int64_t found = 0;
  for (const Value& item : self.items()) {
    found += is_same(item, wanted) || equals(runtime, item, wanted) ? 1 : 0;
  }
  return Value(found);
}

Value copy(Runtime&, const Value& self, Arguments& arguments) {
  arguments.expect_none();
  return self;  // nothing can change either
}

Value get(Runtime& runtime, const Value& self, Arguments& arguments) {
  if (!arguments.keywords.empty()) fail("dict.get() takes no keyword arguments");
  const auto [key, otherwise] = arguments.bind<2>({"key", "default"}, 1);
  check_hashable(key);
  const Value found = element(runtime, self, key);
  if (!found.is(Kind::missing)) return found;
  return otherwise.is(Kind::missing) ? Value() : otherwise;
}

template <ViewOf of>
Value view(Runtime&, const Value& self, Arguments& arguments) {
  arguments.expect_none();
  return Value(self.dict, of);
}

Value fromkeys(Runtime& runtime, const Value&, Arguments& arguments) {
  const auto [keys, value] = arguments.bind<2>({"iterable", "value"}, 1);
  DictBuilder dict(runtime);
  Cursor cursor(runtime, keys);
  for (Value key; cursor.next(runtime, key);) dict.set(key, value.is(Kind::missing) ? Value() : value);
  return dict.finish();
}

constexpr Method kListMethods[] = {
    {"index", index},    {"count", count},     {"copy", copy},      {"append", nullptr},
    {"clear", nullptr},  {"extend", nullptr},  {"insert", nullptr}, {"pop", nullptr},
    {"remove", nullptr}, {"reverse", nullptr}, {"sort", nullptr},
};
constexpr Method kTupleMethods[] = {{"index", index}, {"count", count}};
constexpr Method kDictMethods[] = {
    {"get", get},
    {"keys", view<ViewOf::keys>},
    {"values", view<ViewOf::values>},
    {"items", view<ViewOf::items>},
    {"copy", copy},
    {"fromkeys", fromkeys},
    {"clear", nullptr},
    {"pop", nullptr},
    {"popitem", nullptr},
    {"setdefault", nullptr},
    {"update", nullptr},
};

}  // namespace

Methods list_methods() { return kListMethods; }
Methods tuple_methods() { return kTupleMethods; }
Methods dict_methods() { return kDictMethods; }

}  // namespace heddle::jinja
