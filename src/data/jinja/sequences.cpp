#include "data/jinja/sequences.h"

#include <algorithm>

#include "data/jinja/characters.h"

namespace heddle::jinja {

Cursor::Cursor(Runtime&, const Value& source) : source_(source) {
  if (!is_iterable(source)) fail("'{}' object is not iterable", type_name(source));
}

bool Cursor::next(Runtime& runtime, Value& item) {
  runtime.spend(1);
  switch (source_.kind) {
    case Kind::list:
    case Kind::tuple:
      if (at_ >= source_.size) return false;
      item = source_.elements[at_++];
      return true;
    case Kind::string: {
      if (at_ >= source_.size) return false;
      const auto bytes = static_cast<std::size_t>(unicode::decode(source_.bytes + at_).length);
      item = Value(source_.text().substr(at_, bytes));  // of Markup too: plain
      at_ += bytes;
      return true;
    }
    case Kind::dict:
    case Kind::view: {
      if (at_ >= source_.dict->entries.size()) return false;
      const Entry& entry = source_.dict->entries[at_++];
      if (source_.is(Kind::dict) || source_.view == ViewOf::keys) {
        item = entry.key;
      } else if (source_.view == ViewOf::values) {
        item = entry.value;
      } else {
        const Value pair[] = {entry.key, entry.value};
        item = runtime.tuple(pair);
      }
      return true;
    }
    case Kind::range:
      if (at_ >= static_cast<std::size_t>(source_.range->size())) return false;
      item = Value(source_.range->at(static_cast<std::int64_t>(at_++)));
      return true;
    case Kind::iterator: return source_.iterator->next(runtime, item);
    default: return false;
  }
}

bool is_iterable(const Value& value) {
  switch (value.kind) {
    case Kind::undefined:
    case Kind::string:
    case Kind::list:
    case Kind::tuple:
    case Kind::dict:
    case Kind::range:
    case Kind::view:
    case Kind::iterator: return true;
    default: return false;
  }
}

std::int64_t length(const Value& value) {
  switch (value.kind) {
    case Kind::undefined: return 0;
    case Kind::string: return static_cast<std::int64_t>(length_of(value.text()));
    case Kind::list:
    case Kind::tuple: return value.size;
    case Kind::dict:
    case Kind::view: return static_cast<std::int64_t>(value.dict->entries.size());
    case Kind::range: return value.range->size();
    case Kind::object: return value.object->length();
    default: return -1;
  }
}

std::int64_t length_or_fail(const Value& value) {
  const std::int64_t size = length(value);
  if (size < 0) fail("object of type '{}' has no len()", type_name(value));
  return size;
}

std::vector<Value> elements_of(Runtime& runtime, const Value& value) {
  if (value.is_sequence()) {
    runtime.spend(1 + value.size / 8);
    return {value.items().begin(), value.items().end()};
  }
  std::vector<Value> items;
  Cursor cursor(runtime, value);
  for (Value item; cursor.next(runtime, item);) {
    if (items.size() == items.capacity()) runtime.check_elements(items.size());
    items.push_back(item);
  }
  return items;
}

std::span<const Value> unpack(Runtime& runtime, const Value& value) {
  if (value.is_sequence()) return value.items();
  return runtime.list(elements_of(runtime, value)).items();
}

Value element(Runtime& runtime, const Value& value, const Value& index) {
  if (value.is(Kind::dict)) {
    if (index.is_string()) {
      runtime.spend(1 + static_cast<std::int64_t>(value.dict->entries.size() / 16));
      const Value* found = find(*value.dict, index.text());
      return found != nullptr ? *found : Value::missing();
    }
    if (index.is(Kind::list) || index.is(Kind::dict)) return Value::missing();  // unhashable
    const Value* found = find(runtime, *value.dict, index);
    return found != nullptr ? *found : Value::missing();
  }
  if (value.is(Kind::undefined)) fail_undefined(value);
  if (!index.is_integral()) return Value::missing();
  if (!value.is_sequence() && !value.is_string() && !value.is(Kind::range)) return Value::missing();
  if (value.is_string()) runtime.spend_bytes(value.size);
  const std::int64_t size = length(value);
  std::int64_t at = index.as_integer();
  if (at < 0) at += size;
  if (at < 0 || at >= size) return Value::missing();
  if (value.is(Kind::range)) return Value(value.range->at(at));
  if (value.is_sequence()) return value.elements[at];
  const std::string_view text = value.text();
  const std::size_t begin =
      size == value.size ? static_cast<std::size_t>(at) : offset_of(text, static_cast<std::size_t>(at));
  const auto bytes = static_cast<std::size_t>(unicode::decode(text.data() + begin).length);
  return Value(text.substr(begin, bytes), value.is_markup);
}

namespace {

struct Bounds {
  std::int64_t start, stop, step, count;
};

/// slice.indices(size) of Python.
Bounds bounds_of(const Value& start, const Value& stop, const Value& step, std::int64_t size) {
  const auto index = [](const Value& value) {
    if (value.is_integral()) return value.as_integer();
    fail("slice indices must be integers or None or have an __index__ method");
  };
  const std::int64_t by = step.is(Kind::none) ? 1 : index(step);
  if (by == 0) fail("slice step cannot be zero");
  const std::int64_t lowest = by < 0 ? -1 : 0, highest = by < 0 ? size - 1 : size;
  const auto place = [&](const Value& value, std::int64_t otherwise) {
    if (value.is(Kind::none)) return otherwise;
    std::int64_t at = index(value);
    if (at < 0) at = at < -size ? lowest : std::max(at + size, lowest);
    return std::min(at, highest);
  };
  const std::int64_t first = place(start, by < 0 ? highest : lowest), last = place(stop, by < 0 ? lowest : highest);
  return {first, last, by, Range{first, last, by}.size()};
}

}  // namespace

Value slice_of(Runtime& runtime, const Value& value, const Value& start, const Value& stop, const Value& step) {
  if (value.is(Kind::undefined)) fail_undefined(value);
  if (value.is(Kind::dict)) fail("unhashable type: 'slice'");
  if (!value.is_sequence() && !value.is_string() && !value.is(Kind::range)) {
    fail("'{}' object is not subscriptable", type_name(value));
  }
  if (value.is_string()) runtime.spend_bytes(value.size);
  const std::int64_t size = length(value);
  const Bounds bounds = bounds_of(start, stop, step, size);
  const auto at = [&bounds](std::int64_t i) { return bounds.start + i * bounds.step; };
  if (value.is(Kind::range)) {
    const Range& range = *value.range;
    return Value(runtime.arena.make<Range>(range.at(bounds.start), range.at(bounds.stop), range.step * bounds.step));
  }
  if (value.is_sequence()) {
    if (bounds.step == 1) {
      const auto part =
          value.items().subspan(static_cast<std::size_t>(bounds.start), static_cast<std::size_t>(bounds.count));
      return value.is(Kind::list) ? runtime.list(part) : Value::tuple(part);
    }
    std::vector<Value> items;
    for (std::int64_t i = 0; i < bounds.count; ++i) items.push_back(value.elements[at(i)]);
    return value.is(Kind::list) ? runtime.list(items) : runtime.tuple(items);
  }
  const std::string_view text = value.text();
  const bool is_ascii = size == value.size;
  if (bounds.count == 0) return Value(std::string_view(), value.is_markup);
  if (bounds.step == 1) {
    const auto first = static_cast<std::size_t>(bounds.start), count = static_cast<std::size_t>(bounds.count);
    if (is_ascii) return Value(text.substr(first, count), value.is_markup);
    const std::string_view rest = text.substr(offset_of(text, first));
    return Value(rest.substr(0, offset_of(rest, count)), value.is_markup);
  }
  std::vector<std::uint32_t> offsets;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (unicode::starts_character(text[i])) offsets.push_back(static_cast<std::uint32_t>(i));
  }
  offsets.push_back(value.size);
  std::string out;
  for (std::int64_t i = 0; i < bounds.count; ++i) {
    const auto character = static_cast<std::size_t>(at(i));
    out.append(text, offsets[character], offsets[character + 1] - offsets[character]);
  }
  return runtime.text(out, value.is_markup);
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
  switch (container.kind) {
    case Kind::string:
      if (!item.is_string()) {
        fail("'in <string>' requires string as left operand, not {}", type_name(item));
      }
      runtime.spend_bytes(container.size);
      return container.text().find(item.text()) != std::string_view::npos;
    case Kind::dict: check_hashable(item); return !element(runtime, container, item).is(Kind::missing);
    case Kind::range:
      if (item.is_number()) {
        const Range& range = *container.range;
        if (item.is(Kind::floating)) break;
        const std::int64_t at = item.as_integer(), size = range.size();
        if (size == 0) return false;
        const std::int64_t low = std::min(range.start, range.at(size - 1)),
                           high = std::max(range.start, range.at(size - 1));
        return at >= low && at <= high && (at - range.start) % range.step == 0;
      }
      return false;
    case Kind::view:
      if (container.view == ViewOf::keys) check_hashable(item);
      break;
    default: break;
  }
  if (!is_iterable(container)) fail("argument of type '{}' is not iterable", type_name(container));
  Cursor cursor(runtime, container);
  for (Value other; cursor.next(runtime, other);) {
    if (is_same(other, item) || equals(runtime, other, item)) return true;
  }
  return false;
}

void DictBuilder::set(const Value& key, const Value& value) {
  check_hashable(key);
  runtime_.spend(1 + static_cast<std::int64_t>(entries_.size() / 8));
  runtime_.check_elements(entries_.size());
  for (Entry& entry : entries_) {
    if (key.is_string() ? entry.key.is_string() && entry.key.text() == key.text() : equals(runtime_, entry.key, key)) {
      entry.value = value;
      return;
    }
  }
  entries_.push_back({key, value});
}

void DictBuilder::set_all(const Dict& dict) {
  for (const auto& [key, value] : dict.entries) set(key, value);
}

void DictBuilder::set_from(const Value& source) {
  if (source.is(Kind::dict)) return set_all(*source.dict);
  if (source.is(Kind::object)) {
    if (const Dict* members = source.object->members(runtime_)) return set_all(*members);
  }
  Cursor cursor(runtime_, source);
  for (Value pair; cursor.next(runtime_, pair);) {
    if (!is_iterable(pair)) fail("cannot convert dictionary update sequence element to a sequence");
    const auto parts = unpack(runtime_, pair);
    if (parts.size() != 2) fail("dictionary update sequence element has length {}; 2 is required", parts.size());
    set(parts[0], parts[1]);
  }
}

}  // namespace heddle::jinja
