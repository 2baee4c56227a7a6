#include "ops/tensor.h"

#include <algorithm>

#include "base/error.h"

namespace heddle {

Shape::Shape(std::initializer_list<std::int64_t> extents) : Shape(std::span(extents.begin(), extents.size())) {}

Shape::Shape(std::span<const std::int64_t> extents) : rank_(static_cast<int>(extents.size())) {
  HEDDLE_CHECK(extents.size() <= 4);
  std::copy(extents.begin(), extents.end(), extents_.begin());
}

std::int64_t Shape::elements() const {
  std::int64_t product = 1;
  for (int axis = 0; axis < rank_; ++axis) product *= (*this)[axis];
  return product;
}

bool Shape::operator==(const Shape& other) const {
  return rank_ == other.rank_ && std::equal(extents_.begin(), extents_.begin() + rank_, other.extents_.begin());
}

std::string Shape::text() const {
  std::string result = "[";
  for (int axis = 0; axis < rank_; ++axis) {
    if (axis > 0) result += ", ";
    result += std::to_string((*this)[axis]);
  }
  return result + "]";
}

}  // namespace heddle
