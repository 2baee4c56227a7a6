#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "data/jinja/runtime.h"
#include "data/jinja/value.h"

namespace heddle::jinja {

/// Goes through the elements of a value, as a `for` does: characters of a text, keys of a dict.
class Cursor {
 public:
  /// Throws "'int' object is not iterable" where there is nothing to go through.
  Cursor(Runtime& runtime, const Value& source);
  bool next(Runtime& runtime, Value& item);

 private:
  Value source_;
  std::size_t at_ = 0;
};

bool is_iterable(const Value& value);
/// len(), or -1 where there is none.
std::int64_t length(const Value& value);
/// len(); throws "object of type 'int' has no len()".
std::int64_t length_or_fail(const Value& value);
std::vector<Value> elements_of(Runtime& runtime, const Value& value);
/// The tuple or list items where it is one; else its elements, kept in the arena.
std::span<const Value> unpack(Runtime& runtime, const Value& value);

/// value[index] without attributes: Missing where there is no such element, or where such an index makes no sense.
Value element(Runtime& runtime, const Value& value, const Value& index);
/// Jinja's a.name: an attribute, else an element, else undefined.
Value attribute_of(Runtime& runtime, const Value& value, std::string_view name);
/// Jinja's a[index]: an element, else an attribute, else undefined.
Value item_of(Runtime& runtime, const Value& value, const Value& index);
/// The attribute alone: methods and members of objects; Missing where there is none.
Value own_attribute(Runtime& runtime, const Value& value, std::string_view name);
/// value[start:stop:step]; parts that were left out are None.
Value slice_of(Runtime& runtime, const Value& value, const Value& start, const Value& stop, const Value& step);

bool contains(Runtime& runtime, const Value& container, const Value& item);

/// Builds a dict; a key that is there already gets the new value.
class DictBuilder {
 public:
  explicit DictBuilder(Runtime& runtime) : runtime_(runtime) {}
  void set(const Value& key, const Value& value);
  void set_all(const Dict& dict);
  /// What dict() takes: another dict, or pairs.
  void set_from(const Value& source);
  Value finish() { return runtime_.dict(entries_); }

 private:
  Runtime& runtime_;
  std::vector<Entry> entries_;
};

}  // namespace heddle::jinja
