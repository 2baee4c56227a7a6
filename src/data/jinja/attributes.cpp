// a.b and a['b'], with the sandbox's refusals.
#include "data/jinja/functions.h"
#include "data/jinja/sequences.h"

namespace heddle::jinja {

const Method* MethodsOfName::of(const Value& value) const {
  switch (value.kind) {
    case Kind::string: return string;
    case Kind::list: return list;
    case Kind::tuple: return tuple;
    case Kind::dict: return dict;
    default: return nullptr;
  }
}

MethodsOfName find_methods(std::string_view name) {
  const auto find = [name](Methods methods) -> const Method* {
    for (const Method& method : methods) {
      if (method.name == name) return &method;
    }
    return nullptr;
  };
  return {find(string_methods()), find(list_methods()), find(tuple_methods()), find(dict_methods())};
}

namespace {

Value unsafe(Runtime& runtime, const Value& owner, std::string_view name) {
  return runtime.undefined(fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, type_name(owner)));
}

Value range_attribute(const Range& range, std::string_view name) {
  if (name == "start") return Value(range.start);
  if (name == "stop") return Value(range.stop);
  if (name == "step") return Value(range.step);
  return Value::missing();
}

}  // namespace

Value own_attribute(Runtime& runtime, const Value& value, std::string_view name) {
  if (value.is(Kind::undefined)) fail_undefined(value);
  if (name.starts_with("__") && name.ends_with("__")) return unsafe(runtime, value, name);
  if (value.is(Kind::object)) {
    Value member;
    return value.object->attribute(runtime, name, member) ? member : Value::missing();
  }
  if (value.is(Kind::range)) return range_attribute(*value.range, name);
  if (value.is_group && name == "grouper") return value.elements[0];
  if (value.is_group && name == "list") return value.elements[1];
  const Method* method = find_methods(name).of(value);
  if (method == nullptr) return Value::missing();
  if (method->function == nullptr) return unsafe(runtime, value, name);
  return Value(static_cast<Object*>(runtime.arena.make<BoundMethod>(method, value)));
}

Value attribute_of(Runtime& runtime, const Value& value, std::string_view name) {
  Value result = own_attribute(runtime, value, name);
  if (!result.is(Kind::missing)) return result;
  result = element(runtime, value, Value(name));
  return result.is(Kind::missing) ? runtime.undefined_member(value, Value(name)) : result;
}

Value item_of(Runtime& runtime, const Value& value, const Value& index) {
  Value result = element(runtime, value, index);
  if (result.is(Kind::missing) && index.is_string()) result = own_attribute(runtime, value, index.text());
  return result.is(Kind::missing) ? runtime.undefined_member(value, index) : result;
}

Value call_value(Runtime& runtime, const Value& callee, Arguments& arguments) {
  if (callee.is(Kind::undefined)) fail_undefined(callee);
  if (!callee.is(Kind::object)) fail("'{}' object is not callable", type_name(callee));
  runtime.spend(1);
  return callee.object->call(runtime, arguments);
}

}  // namespace heddle::jinja
