#pragma once

#include <string_view>
#include <vector>

#include "data/jinja/runtime.h"
#include "data/jinja/value.h"

namespace heddle::jinja {

/// What filters take as `attribute`: "a.b.0" or a number. Without one, the value itself.
class AttributePath {
 public:
  AttributePath(Runtime& runtime, const Value& attribute);
  /// `otherwise` takes the place of what is undefined on the way, unless it is missing or None.
  Value of(Runtime& runtime, Value item, const Value& otherwise = Value::missing()) const;

 private:
  std::vector<Value> parts_;
};

/// A text in lower case, anything else as it is.
Value ignore_case(Runtime& runtime, const Value& value);

/// The order of sorted(): of `keys`, stable, also where it is reversed.
std::vector<std::size_t> sorted_order(Runtime& runtime, const std::vector<Value>& keys, bool is_reversed);

}  // namespace heddle::jinja
