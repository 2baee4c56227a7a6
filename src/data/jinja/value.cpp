#include "data/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <compare>

#include "data/jinja/print.h"
#include "data/jinja/runtime.h"

namespace heddle::jinja {

std::int64_t Range::size() const {
  if (step > 0 ? stop <= start : stop >= start) return 0;
  const auto wrapped = [](std::int64_t number) { return static_cast<std::uint64_t>(number); };
  const std::uint64_t distance = step > 0 ? wrapped(stop) - wrapped(start) : wrapped(start) - wrapped(stop);
  const std::uint64_t count = (distance - 1) / (step > 0 ? wrapped(step) : 0 - wrapped(step)) + 1;
  return static_cast<std::int64_t>(std::min<std::uint64_t>(count, INT64_MAX));
}

namespace {

/// As Jinja names the owner of a missing attribute.
std::string owner_name(const Value& owner) {
  if (owner.is(Kind::none)) return "None";
  if (owner.is_markup) return "markupsafe.Markup object";
  return std::string(type_name(owner)) + " object";
}

}  // namespace

std::string Undefined::message() const {
  if (!hint.empty()) return std::string(hint);
  if (owner.is(Kind::missing)) return repr(name) + " is undefined";
  if (!name.is_string()) return owner_name(owner) + " has no element " + repr(name);
  return repr(Value(std::string_view(owner_name(owner)))) + " has no attribute " + repr(name);
}

void fail_undefined(const Value& value) { throw Error(value.undefined->message()); }

std::string_view type_name(const Value& value) {
  switch (value.kind) {
    case Kind::missing:
    case Kind::undefined: return "Undefined";
    case Kind::none: return "NoneType";
    case Kind::boolean: return "bool";
    case Kind::integer: return "int";
    case Kind::floating: return "float";
    case Kind::string: return value.is_markup ? "Markup" : "str";
    case Kind::list: return "list";
    case Kind::tuple: return "tuple";
    case Kind::dict: return "dict";
    case Kind::range: return "range";
    case Kind::view:
      return value.view == ViewOf::keys ? "dict_keys" : value.view == ViewOf::values ? "dict_values" : "dict_items";
    case Kind::iterator: return value.iterator->type_name();
    case Kind::object: return value.object->type_name();
  }
  return "";
}

bool is_true(const Value& value) {
  switch (value.kind) {
    case Kind::missing:
    case Kind::undefined:
    case Kind::none: return false;
    case Kind::boolean: return value.boolean;
    case Kind::integer: return value.integer != 0;
    case Kind::floating: return value.floating != 0.0;
    case Kind::string:
    case Kind::list:
    case Kind::tuple: return value.size != 0;
    case Kind::dict:
    case Kind::view: return !value.dict->entries.empty();
    case Kind::range: return value.range->size() != 0;
    case Kind::iterator:
    case Kind::object: return true;
  }
  return false;
}

namespace {

/// Exact, as Python compares an int with a float. Unordered where a side is NaN.
std::partial_ordering compare_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.as_integer() <=> b.as_integer();
  if (a.is(Kind::floating) && b.is(Kind::floating)) return a.floating <=> b.floating;
  if (a.is(Kind::floating)) {
    const auto reversed = compare_numbers(b, a);
    if (reversed == std::partial_ordering::less) return std::partial_ordering::greater;
    return reversed == std::partial_ordering::greater ? std::partial_ordering::less : reversed;
  }
  const std::int64_t integer = a.as_integer();
  if (std::isnan(b.floating)) return std::partial_ordering::unordered;
  if (b.floating >= 0x1p63) return std::partial_ordering::less;
  if (b.floating < -0x1p63) return std::partial_ordering::greater;
  const auto whole = static_cast<std::int64_t>(b.floating);
  if (integer != whole) return integer <=> whole;
  return 0.0 <=> (b.floating - static_cast<double>(whole));
}

bool equal_items(Runtime& runtime, std::span<const Value> a, std::span<const Value> b, int depth) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!is_same(a[i], b[i]) && !equals(runtime, a[i], b[i], depth + 1)) return false;
  }
  return true;
}

bool equal_dicts(Runtime& runtime, const Dict& a, const Dict& b, int depth) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const Entry& entry : a.entries) {
    const Value* other = find(runtime, b, entry.key);
    if (other == nullptr || (!is_same(entry.value, *other) && !equals(runtime, entry.value, *other, depth + 1)))
      return false;
  }
  return true;
}

bool equal_ranges(const Range& a, const Range& b) {
  const std::int64_t size = a.size();
  if (size != b.size()) return false;
  return size == 0 || (a.start == b.start && (size == 1 || a.step == b.step));
}

}  // namespace

bool equals(Runtime& runtime, const Value& a, const Value& b, int depth) {
  check_nesting(depth);
  runtime.spend(1);
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == std::partial_ordering::equivalent;
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::missing:
    case Kind::undefined:
    case Kind::none: return true;
    case Kind::string: return a.text() == b.text();
    case Kind::list:
    case Kind::tuple: return equal_items(runtime, a.items(), b.items(), depth);
    case Kind::dict: return equal_dicts(runtime, *a.dict, *b.dict, depth);
    case Kind::range: return equal_ranges(*a.range, *b.range);
    case Kind::view:  // sets of keys or of items; values are equal only to themselves
      if (a.view != b.view || a.view == ViewOf::values) return false;
      if (a.view == ViewOf::items) return equal_dicts(runtime, *a.dict, *b.dict, depth);
      if (a.dict->entries.size() != b.dict->entries.size()) return false;
      for (const Entry& entry : a.dict->entries) {
        if (find(runtime, *b.dict, entry.key) == nullptr) return false;
      }
      return true;
    default: return is_same(a, b);
  }
}

bool is_less(Runtime& runtime, const Value& a, const Value& b, std::string_view sign, int depth) {
  check_nesting(depth);
  runtime.spend(1);
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == std::partial_ordering::less;
  if (a.is_string() && b.is_string()) return a.text() < b.text();  // UTF-8 sorts as code points do
  if (a.kind == b.kind && a.is_sequence()) {
    for (std::size_t i = 0; i < a.size && i < b.size; ++i) {
      if (!is_same(a.elements[i], b.elements[i]) && !equals(runtime, a.elements[i], b.elements[i], depth + 1)) {
        return is_less(runtime, a.elements[i], b.elements[i], sign, depth + 1);
      }
    }
    return a.size < b.size;
  }
  if (a.is(Kind::undefined)) fail_undefined(a);
  if (b.is(Kind::undefined)) fail_undefined(b);
  const bool is_swapped = sign == ">" || sign == ">=";  // a > b is asked as b < a
  fail("'{}' not supported between instances of '{}' and '{}'", sign, type_name(is_swapped ? b : a),
       type_name(is_swapped ? a : b));
}

bool is_same(const Value& a, const Value& b) {
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::missing:
    case Kind::none: return true;
    case Kind::boolean: return a.boolean == b.boolean;
    case Kind::integer: return a.integer == b.integer;
    case Kind::floating: return a.floating == b.floating;
    case Kind::string: return a.size == b.size && (a.bytes == b.bytes || a.text() == b.text());
    case Kind::list: return a.elements == b.elements && a.size == b.size && a.size != 0;
    case Kind::tuple: return a.elements == b.elements && a.size == b.size;
    default: return a.object == b.object;
  }
}

const Value* find(const Dict& dict, std::string_view key) {
  for (const Entry& entry : dict.entries) {
    if (entry.key.is_string() && entry.key.text() == key) return &entry.value;
  }
  return nullptr;
}

const Value* find(Runtime& runtime, const Dict& dict, const Value& key) {
  if (key.is_string()) return find(dict, key.text());
  for (const Entry& entry : dict.entries) {
    if (equals(runtime, entry.key, key)) return &entry.value;
  }
  return nullptr;
}

void check_hashable(const Value& key, int depth) {
  check_nesting(depth);
  const bool is_set = key.is(Kind::view) && key.view != ViewOf::values;
  if (key.is(Kind::list) || key.is(Kind::dict) || is_set) fail("unhashable type: '{}'", type_name(key));
  if (!key.is(Kind::tuple)) return;
  for (const Value& item : key.items()) check_hashable(item, depth + 1);
}

}  // namespace heddle::jinja
