#pragma once

#include <array>
#include <bit>
#include <cstdint>

/// The 8-bit codes of optimizer states, by quantize/dynamic_map.h.
namespace heddle::cpu {

class DynamicMap {
 public:
  /// Both are made once and kept.
  static const DynamicMap& signed_map();
  static const DynamicMap& unsigned_map();

  float value(std::uint8_t code) const { return values_[code]; }
  /// The code of the nearest value; of two as near, the lower one. x lies in [-1, 1].
  std::uint8_t code(float x) const {
    const std::size_t cell = cell_of(x);
    return static_cast<std::uint8_t>(codes_[cell] + (x > boundaries_[cell] ? 1 : 0));
  }

  // The same for vectors: a float's magnitude, its bits >> kShift less kFirstCell, within [0, kCells), and kCells more
  // where it is negative, is the index of a cell, a stretch so short that at most one boundary between codes lies in
  // it.
  static constexpr int kMantissaBits = 7, kLeastExponent = -24, kExponents = 25;
  static constexpr int kShift = 23 - kMantissaBits;
  static constexpr std::int32_t kCells = kExponents << kMantissaBits;  // of one sign
  static constexpr std::int32_t kFirstCell = (127 + kLeastExponent) << kMantissaBits;
  const float* values() const { return values_.data(); }
  const float* boundaries() const { return boundaries_.data(); }  ///< of each cell the largest float of the lower code
  const std::int32_t* codes() const { return codes_.data(); }     ///< and that code

 private:
  explicit DynamicMap(bool is_signed);

  /// What is smaller than 2^kLeastExponent is in the first cell of its sign, what is larger than one in the last.
  static std::size_t cell_of(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const auto magnitude = static_cast<std::int32_t>((bits & 0x7fffffffu) >> kShift) - kFirstCell;
    const std::int32_t bounded = magnitude < 0 ? 0 : magnitude >= kCells ? kCells - 1 : magnitude;
    return static_cast<std::size_t>(bounded) + (bits >> 31) * static_cast<std::size_t>(kCells);
  }
  std::uint8_t nearest(float x) const;
  void fill_cell(std::size_t index, float first, float last);

  std::array<float, 256> values_;
  std::array<float, 2 * static_cast<std::size_t>(kCells)> boundaries_;
  std::array<std::int32_t, 2 * static_cast<std::size_t>(kCells)> codes_;
};

}  // namespace heddle::cpu
