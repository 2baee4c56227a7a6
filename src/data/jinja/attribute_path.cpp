#include "data/jinja/attribute_path.h"

#include <algorithm>
#include <charconv>
#include <numeric>

#include "data/jinja/characters.h"
#include "data/jinja/sequences.h"
#include "data/jinja/string_search.h"

namespace heddle::jinja {

AttributePath::AttributePath(Runtime& runtime, const Value& attribute) {
  if (attribute.is(Kind::missing) || attribute.is(Kind::none)) return;
  if (!attribute.is_string()) {
    parts_.push_back(attribute);
    return;
  }
  for (const std::string_view part : split(attribute.text(), ".", -1)) {
    std::int64_t index = 0;
    const bool is_index =
        !part.empty() && std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    const auto result = std::from_chars(part.data(), part.data() + part.size(), index);
    parts_.push_back(is_index && result.ec == std::errc() ? Value(index) : Value(part));
  }
  runtime.spend(static_cast<std::int64_t>(parts_.size()));
}

Value AttributePath::of(Runtime& runtime, Value item, const Value& otherwise) const {
  const bool has_default = !otherwise.is(Kind::missing) && !otherwise.is(Kind::none);
  for (const Value& part : parts_) {
    runtime.spend(1);
    item = item_of(runtime, item, part);
    if (has_default && item.is(Kind::undefined)) item = otherwise;
  }
  return item;
}

Value ignore_case(Runtime& runtime, const Value& value) {
  return value.is_string() ? runtime.text(lower(value.text()), value.is_markup) : value;
}

std::vector<std::size_t> sorted_order(Runtime& runtime, const std::vector<Value>& keys, bool is_reversed) {
  std::vector<std::size_t> order(keys.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return is_reversed ? is_less(runtime, keys[b], keys[a]) : is_less(runtime, keys[a], keys[b]);
  });
  return order;
}

}  // namespace heddle::jinja
