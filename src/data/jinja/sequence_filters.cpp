// Filters over lists, dicts and whatever a loop goes through.
#include <algorithm>
#include <vector>

#include "data/jinja/arguments.h"
#include "data/jinja/attribute_path.h"
#include "data/jinja/builtins.h"
#include "data/jinja/characters.h"
#include "data/jinja/operators.h"
#include "data/jinja/print.h"
#include "data/jinja/sequences.h"

namespace heddle::jinja {
namespace {

/// A finished list, read as a generator.
class Items final : public Iterator {
 public:
  Items(std::span<const Value> items, std::string_view type) : items_(items), type_(type) {}
  bool next(Runtime&, Value& item) override {
    if (items_.empty()) return false;
    item = items_.front();
    items_ = items_.subspan(1);
    return true;
  }
  std::string_view type_name() const override { return type_; }

 private:
  std::span<const Value> items_;
  std::string_view type_;
};

Value generator(Runtime& runtime, std::span<const Value> items, std::string_view type = "generator") {
  return Value(static_cast<Iterator*>(runtime.arena.make<Items>(runtime.arena.copy(items), type)));
}

Value first(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.expect_none();
  Cursor cursor(runtime, input);
  Value item;
  return cursor.next(runtime, item) ? item : runtime.undefined("No first item, sequence was empty.");
}

/// The elements in reverse, of what has an end.
std::vector<Value> reversed(Runtime& runtime, const Value& input) {
  if (input.is(Kind::iterator) || !is_iterable(input)) fail("'{}' object is not reversible", type_name(input));
  std::vector<Value> items = elements_of(runtime, input);
  std::reverse(items.begin(), items.end());
  return items;
}

Value last(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.expect_none();
  const auto items = reversed(runtime, input);
  return items.empty() ? runtime.undefined("No last item, sequence was empty.") : items.front();
}

Value reverse(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.expect_none();
  if (input.is_string()) return slice_of(runtime, input, Value(), Value(), Value(std::int64_t{-1}));
  if (!is_iterable(input)) fail("argument must be iterable");
  if (input.is(Kind::iterator)) {
    auto items = elements_of(runtime, input);
    std::reverse(items.begin(), items.end());
    return runtime.list(items);
  }
  return generator(runtime, reversed(runtime, input), "list_reverseiterator");
}

Value length_filter(Runtime&, const Value& input, Arguments& arguments) {
  arguments.expect_none();
  return Value(length_or_fail(input));
}

Value list_filter(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.expect_none();
  return runtime.list(elements_of(runtime, input));
}

Value items_filter(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.expect_none();
  if (input.is(Kind::undefined)) return generator(runtime, {});
  if (!input.is(Kind::dict)) fail("Can only get item pairs from a mapping.");
  return generator(runtime, elements_of(runtime, Value(input.dict, ViewOf::items)));
}

Value default_filter(Runtime&, const Value& input, Arguments& arguments) {
  const auto [otherwise, boolean] = arguments.bind<2>({"default_value", "boolean"}, 0);
  const bool is_needed = input.is(Kind::undefined) || (flag_or(boolean, false) && !is_true(input));
  if (!is_needed) return input;
  return otherwise.is(Kind::missing) ? Value(std::string_view()) : otherwise;
}

Value attr(Runtime& runtime, const Value& input, Arguments& arguments) {
  const auto [name] = arguments.bind<1>({"name"}, 1);
  const Value found = own_attribute(runtime, input, string_of(name, "attribute name"));
  return found.is(Kind::missing) ? runtime.undefined_member(input, name) : found;
}

Value join(Runtime& runtime, const Value& input, Arguments& arguments) {
  const auto [separator, attribute] = arguments.bind<2>({"d", "attribute"}, 0);
  const std::string_view between = separator.is(Kind::missing) ? std::string_view() : text_of(runtime, separator);
  const AttributePath path(runtime, attribute);
  Cursor cursor(runtime, input);
  std::string out;
  bool is_first = true;
  for (Value item; cursor.next(runtime, item);) {
    if (!is_first) out += between;
    is_first = false;
    append_text(out, path.of(runtime, item));
    check_printed(out);
  }
  runtime.spend_bytes(out.size());
  return runtime.text(out);
}

Value sum(Runtime& runtime, const Value& input, Arguments& arguments) {
  const auto [attribute, start] = arguments.bind<2>({"attribute", "start"}, 0);
  const AttributePath path(runtime, attribute);
  Value total = start.is(Kind::missing) ? Value(std::int64_t{0}) : start;
  if (total.is_string()) fail("sum() can't sum strings [use ''.join(seq) instead]");
  Cursor cursor(runtime, input);
  for (Value item; cursor.next(runtime, item);) total = operate(runtime, BinaryOp::add, total, path.of(runtime, item));
  return total;
}

template <bool takes_least>
Value extreme(Runtime& runtime, const Value& input, Arguments& arguments) {
  const auto [case_sensitive, attribute] = arguments.bind<2>({"case_sensitive", "attribute"}, 0);
  const AttributePath path(runtime, attribute);
  Cursor cursor(runtime, input);
  Value best, best_key = Value::missing();
  for (Value item; cursor.next(runtime, item);) {
    Value key = path.of(runtime, item);
    if (!flag_or(case_sensitive, false)) key = ignore_case(runtime, key);
    if (best_key.is(Kind::missing) ||
        (takes_least ? is_less(runtime, key, best_key) : is_less(runtime, best_key, key, ">"))) {
      best = item;
      best_key = key;
    }
  }
  return best_key.is(Kind::missing) ? runtime.undefined("No aggregated item, sequence was empty.") : best;
}

Value pick(Runtime& runtime, const std::vector<Value>& items, const std::vector<std::size_t>& order) {
  std::vector<Value> picked;
  picked.reserve(items.size());
  for (const std::size_t i : order) picked.push_back(items[i]);
  return runtime.list(picked);
}

Value sort(Runtime& runtime, const Value& input, Arguments& arguments) {
  const auto [reverse_order, case_sensitive, attribute] =
      arguments.bind<3>({"reverse", "case_sensitive", "attribute"}, 0);
  std::vector<AttributePath> paths;
  if (attribute.is_string()) {
    for (std::size_t at = 0; at != std::string_view::npos;) {
      const std::size_t comma = attribute.text().find(',', at);
      paths.emplace_back(runtime,
                         Value(attribute.text().substr(at, comma == std::string_view::npos ? comma : comma - at)));
      at = comma == std::string_view::npos ? comma : comma + 1;
    }
  } else {
    paths.emplace_back(runtime, attribute);
  }
  const std::vector<Value> items = elements_of(runtime, input);
  std::vector<Value> keys;
  for (const Value& item : items) {
    std::vector<Value> parts;
    for (const AttributePath& path : paths) {
      const Value part = path.of(runtime, item);
      parts.push_back(flag_or(case_sensitive, false) ? part : ignore_case(runtime, part));
    }
    keys.push_back(runtime.list(parts));
  }
  return pick(runtime, items, sorted_order(runtime, keys, flag_or(reverse_order, false)));
}

Value dictsort(Runtime& runtime, const Value& input, Arguments& arguments) {
  const auto [case_sensitive, by, reverse_order] = arguments.bind<3>({"case_sensitive", "by", "reverse"}, 0);
  const std::string_view part = by.is(Kind::missing) ? "key" : by.is_string() ? by.text() : "";
  if (part != "key" && part != "value") fail("You can only sort by either \"key\" or \"value\"");
  if (input.is(Kind::undefined)) fail_undefined(input);
  if (!input.is(Kind::dict)) fail("'{}' object has no attribute 'items'", type_name(input));
  const std::vector<Value> items = elements_of(runtime, Value(input.dict, ViewOf::items));
  std::vector<Value> keys;
  for (const Value& item : items) {
    const Value& key = item.elements[part == "key" ? 0 : 1];
    keys.push_back(flag_or(case_sensitive, false) ? key : ignore_case(runtime, key));
  }
  return pick(runtime, items, sorted_order(runtime, keys, flag_or(reverse_order, false)));
}

Value unique(Runtime& runtime, const Value& input, Arguments& arguments) {
  const auto [case_sensitive, attribute] = arguments.bind<2>({"case_sensitive", "attribute"}, 0);
  const AttributePath path(runtime, attribute);
  std::vector<Value> items, seen;
  Cursor cursor(runtime, input);
  for (Value item; cursor.next(runtime, item);) {
    Value key = path.of(runtime, item);
    if (!flag_or(case_sensitive, false)) key = ignore_case(runtime, key);
    check_hashable(key);
    const auto is_key = [&](const Value& other) { return is_same(other, key) || equals(runtime, other, key); };
    runtime.spend(static_cast<std::int64_t>(seen.size() / 8));
    if (std::any_of(seen.begin(), seen.end(), is_key)) continue;
    seen.push_back(key);
    items.push_back(item);
  }
  return generator(runtime, items);
}

Value groupby(Runtime& runtime, const Value& input, Arguments& arguments) {
  const auto [attribute, otherwise, case_sensitive] = arguments.bind<3>({"attribute", "default", "case_sensitive"}, 1);
  const AttributePath path(runtime, attribute);
  const bool is_exact = flag_or(case_sensitive, false);
  const std::vector<Value> items = elements_of(runtime, input);
  std::vector<Value> values, keys;
  for (const Value& item : items) {
    values.push_back(path.of(runtime, item, otherwise));
    keys.push_back(is_exact ? values.back() : ignore_case(runtime, values.back()));
  }
  const auto order = sorted_order(runtime, keys, false);
  std::vector<Value> groups;
  for (std::size_t begin = 0; begin < order.size();) {
    std::vector<Value> members;
    std::size_t end = begin;
    for (; end < order.size() && equals(runtime, keys[order[end]], keys[order[begin]]); ++end) {
      members.push_back(items[order[end]]);
    }
    if (end == begin) members.push_back(items[order[end++]]);  // NaN is not equal to itself
    const Value pair[] = {values[order[begin]], runtime.list(members)};
    Value group = runtime.tuple(pair);
    group.is_group = true;
    groups.push_back(group);
    begin = end;
  }
  return runtime.list(groups);
}

Value batch(Runtime& runtime, const Value& input, Arguments& arguments) {
  const auto [count, fill] = arguments.bind<2>({"linecount", "fill_with"}, 1);
  const std::int64_t width = integer_of(count);
  std::vector<Value> rows, row;
  Cursor cursor(runtime, input);
  for (Value item; cursor.next(runtime, item);) {
    if (static_cast<std::int64_t>(row.size()) == width) {
      rows.push_back(runtime.list(row));
      row.clear();
    }
    row.push_back(item);
  }
  if (!row.empty()) {
    const bool fills = !fill.is(Kind::missing) && !fill.is(Kind::none);
    while (fills && static_cast<std::int64_t>(row.size()) < width) {
      runtime.spend(1);
      runtime.check_elements(row.size());
      row.push_back(fill);
    }
    rows.push_back(runtime.list(row));
  }
  return generator(runtime, rows);
}

Value slice(Runtime& runtime, const Value& input, Arguments& arguments) {
  const auto [count, fill] = arguments.bind<2>({"slices", "fill_with"}, 1);
  const std::vector<Value> items = elements_of(runtime, input);
  const std::int64_t slices = integer_of(count);
  if (slices == 0) fail("integer division or modulo by zero");
  const bool fills = !fill.is(Kind::missing) && !fill.is(Kind::none);
  std::vector<Value> columns;
  const auto size = static_cast<std::int64_t>(items.size());
  for (std::int64_t i = 0, at = 0; i < slices; ++i) {
    runtime.spend(1);
    runtime.check_elements(columns.size());
    const std::int64_t wanted = size / slices + (i < size % slices ? 1 : 0);
    std::vector<Value> column(items.begin() + at, items.begin() + at + wanted);
    at += wanted;
    if (fills && i >= size % slices) column.push_back(fill);
    columns.push_back(runtime.list(column));
  }
  return generator(runtime, columns);
}

constexpr Named<FilterFunction> kFilters[] = {
    {"first", first},         {"last", last},          {"reverse", reverse},    {"length", length_filter},
    {"count", length_filter}, {"list", list_filter},   {"items", items_filter}, {"default", default_filter},
    {"d", default_filter},    {"attr", attr},          {"join", join},          {"sum", sum},
    {"min", extreme<true>},   {"max", extreme<false>}, {"sort", sort},          {"dictsort", dictsort},
    {"unique", unique},       {"groupby", groupby},    {"batch", batch},        {"slice", slice},
};

}  // namespace

Filters sequence_filters() { return kFilters; }

}  // namespace heddle::jinja
