#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "base/dtype.h"

namespace heddle {

/// Up to four extents, outermost first; row-major and dense.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents);
  explicit Shape(std::span<const std::int64_t> extents);

  int rank() const { return rank_; }
  std::int64_t operator[](int axis) const { return extents_[static_cast<std::size_t>(axis)]; }
  std::int64_t& operator[](int axis) { return extents_[static_cast<std::size_t>(axis)]; }
  std::int64_t back() const { return extents_[static_cast<std::size_t>(rank_ - 1)]; }
  std::span<const std::int64_t> extents() const { return {extents_.data(), static_cast<std::size_t>(rank_)}; }
  std::int64_t elements() const;
  /// Product of all extents but the last.
  std::int64_t rows() const { return elements() / back(); }
  bool operator==(const Shape& other) const;
  /// "[1024, 768]"
  std::string text() const;

 private:
  std::array<std::int64_t, 4> extents_{};
  int rank_ = 0;
};

/// Where a kernel finds a tensor. `data` is null for an optional operand that is absent.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::f32;
  Shape shape;

  bool present() const { return data != nullptr; }
  std::int64_t elements() const { return shape.elements(); }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

}  // namespace heddle
