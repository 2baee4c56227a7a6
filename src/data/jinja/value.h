#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

/// The values of a template, with Python's semantics. All live in the arena of one rendering, in the template or in
/// its input; a Value is copied as it is.
namespace heddle::jinja {

class Runtime;
class Object;
class Iterator;
struct Dict;
struct Range;
struct Undefined;
struct Value;

enum class Kind : std::uint8_t {
  missing,  // a variable that was never set; no expression yields it
  undefined,
  none,
  boolean,
  integer,
  floating,
  string,
  list,
  tuple,
  dict,
  range,
  view,      // dict.keys(), .values(), .items()
  iterator,  // generators and their like: read once
  object,
};

enum class ViewOf : std::uint8_t { keys, values, items };

struct Value {
  Kind kind = Kind::none;
  bool is_markup = false;  // of a string: markupsafe's Markup
  ViewOf view = ViewOf::keys;
  bool is_group = false;   // of a tuple: from groupby, with .grouper and .list
  std::uint32_t size = 0;  // bytes of a string, elements of a list or tuple
  union {
    bool boolean;
    std::int64_t integer;
    double floating;
    const char* bytes;
    const Value* elements;
    const Dict* dict;
    const Range* range;
    const Undefined* undefined;
    Iterator* iterator;
    Object* object;
  };

  Value() : integer(0) {}
  explicit Value(Kind k) : kind(k), integer(0) {}
  explicit Value(bool value) : kind(Kind::boolean), integer(value ? 1 : 0) { boolean = value; }
  explicit Value(std::int64_t value) : kind(Kind::integer), integer(value) {}
  explicit Value(std::size_t value) : Value(static_cast<std::int64_t>(value)) {}
  explicit Value(double value) : kind(Kind::floating), floating(value) {}
  explicit Value(std::string_view value, bool markup = false)
      : kind(Kind::string), is_markup(markup), size(checked_size(value.size())), bytes(value.data()) {}
  explicit Value(const char*) = delete;  // would become a boolean
  explicit Value(const Dict* value) : kind(Kind::dict), dict(value) {}
  Value(const Dict* value, ViewOf of) : kind(Kind::view), view(of), dict(value) {}
  explicit Value(const Range* value) : kind(Kind::range), range(value) {}
  explicit Value(const Undefined* value) : kind(Kind::undefined), undefined(value) {}
  explicit Value(Iterator* value) : kind(Kind::iterator), iterator(value) {}
  explicit Value(Object* value) : kind(Kind::object), object(value) {}

  static Value list(std::span<const Value> items) { return sequence(Kind::list, items); }
  static Value tuple(std::span<const Value> items) { return sequence(Kind::tuple, items); }
  static Value missing() { return Value(Kind::missing); }

  bool is(Kind k) const { return kind == k; }
  bool is_string() const { return kind == Kind::string; }
  bool is_sequence() const { return kind == Kind::list || kind == Kind::tuple; }
  /// A number to arithmetic: booleans are.
  bool is_integral() const { return kind == Kind::integer || kind == Kind::boolean; }
  bool is_number() const { return is_integral() || kind == Kind::floating; }

  std::string_view text() const { return {bytes, size}; }
  std::span<const Value> items() const { return {elements, size}; }
  std::int64_t as_integer() const { return kind == Kind::boolean ? static_cast<std::int64_t>(boolean) : integer; }
  double as_floating() const { return kind == Kind::floating ? floating : static_cast<double>(as_integer()); }

 private:
  static std::uint32_t checked_size(std::size_t size) {
    if (size > UINT32_MAX) fail("a text or list of {} bytes or elements is too long", size);
    return static_cast<std::uint32_t>(size);
  }
  static Value sequence(Kind k, std::span<const Value> items) {
    Value value(k);
    value.size = checked_size(items.size());
    value.elements = items.data();
    return value;
  }
};

struct Entry {
  Value key, value;
};

/// In the order of insertion; a look-up is linear.
struct Dict {
  std::span<const Entry> entries;
};

struct Range {
  std::int64_t start, stop, step;
  std::int64_t size() const;
  std::int64_t at(std::int64_t index) const { return start + index * step; }
};

/// Why a value is undefined: what it says when it is used.
struct Undefined {
  std::string_view hint;  // the message, where it is not made from the rest
  Value name;             // of a variable, attribute or element
  Value owner;            // missing: it was a variable
  std::string message() const;
};

/// What is read once, element by element.
class Iterator {
 public:
  virtual bool next(Runtime& runtime, Value& item) = 0;
  /// As Python names its type.
  virtual std::string_view type_name() const { return "generator"; }

 protected:
  ~Iterator() = default;  // in the arena
};

struct Keyword {
  std::string_view name;
  Value value;
};

class Arguments;

/// Whatever is not plain data: functions, macros, namespaces, loops.
class Object {
 public:
  virtual std::string_view type_name() const = 0;
  /// False: there is no such attribute.
  virtual bool attribute(Runtime&, std::string_view, Value&) { return false; }
  virtual bool is_callable() const { return false; }
  virtual Value call(Runtime&, Arguments&) { fail("'{}' object is not callable", type_name()); }
  virtual std::int64_t length() { return -1; }  // -1: no len()
  virtual const Dict* members(Runtime&) { return nullptr; }
  virtual void append_repr(std::string& out, int) const { out += fmt::format("<{} object>", type_name()); }

 protected:
  ~Object() = default;  // in the arena
};

/// "str", "dict", "NoneType", ...
std::string_view type_name(const Value& value);
/// Throws what Jinja says where an undefined value is used.
[[noreturn]] void fail_undefined(const Value& value);

bool is_true(const Value& value);
/// ==, which never fails. Throws Error where values are nested too deeply.
bool equals(Runtime& runtime, const Value& a, const Value& b, int depth = 0);
/// <, with Python's error where the types have no order.
/// `sign` is what the template has; where that is > or >=, the sides are the other way round.
bool is_less(Runtime& runtime, const Value& a, const Value& b, std::string_view sign = "<", int depth = 0);
/// Python's `is`; equal texts count as one object.
bool is_same(const Value& a, const Value& b);

const Value* find(Runtime& runtime, const Dict& dict, const Value& key);
const Value* find(const Dict& dict, std::string_view key);
/// Throws "unhashable type: ..." for what cannot be a key.
void check_hashable(const Value& key, int depth = 0);

/// How deep lists and dicts may be nested where they are compared, printed or copied.
inline constexpr int kMaxNesting = 200;
inline void check_nesting(int depth) {
  if (depth > kMaxNesting) fail("values are nested more than {} levels deep", kMaxNesting);
}

}  // namespace heddle::jinja
