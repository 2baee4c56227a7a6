#include "kernels/cpu/dynamic_map.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "quantize/dynamic_map.h"

namespace heddle::cpu {

DynamicMap::DynamicMap(bool is_signed) : values_(dynamic_map_values(is_signed)), boundaries_{}, codes_{} {
  for (std::uint32_t cell = 0; cell < kCells; ++cell) {
    const std::uint32_t bits = (cell + static_cast<std::uint32_t>(kFirstCell)) << kShift;
    const auto first = cell == 0 ? 0.0f : std::bit_cast<float>(bits);
    const auto last = std::bit_cast<float>(bits | ((1u << kShift) - 1));
    fill_cell(cell, first, last);
    fill_cell(cell + static_cast<std::uint32_t>(kCells), -last, -first);
  }
}

const DynamicMap& DynamicMap::signed_map() {
  static const DynamicMap map(true);
  return map;
}

const DynamicMap& DynamicMap::unsigned_map() {
  static const DynamicMap map(false);
  return map;
}

/// By differences in f32, as torch.argmin finds it.
std::uint8_t DynamicMap::nearest(float x) const {
  std::size_t best = 0;
  for (std::size_t i = 1; i < values_.size(); ++i) {
    if (std::fabs(x - values_[i]) < std::fabs(x - values_[best])) best = i;
  }
  return static_cast<std::uint8_t>(best);
}

void DynamicMap::fill_cell(std::size_t index, float first, float last) {
  const int lower = nearest(first), upper = nearest(last);
  codes_[index] = lower;
  boundaries_[index] = last;
  if (upper == lower) return;
  HEDDLE_CHECK(upper == lower + 1);
  float below = first, above = last;  // of the lower and of the upper code
  while (std::nextafter(below, above) < above) {
    const float middle = std::clamp(below + (above - below) / 2.0f, std::nextafter(below, above), above);
    (nearest(middle) == lower ? below : above) = middle;
  }
  boundaries_[index] = below;
}

}  // namespace heddle::cpu
