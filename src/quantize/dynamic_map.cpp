#include "quantize/dynamic_map.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace heddle {
namespace {

/// torch.linspace(0.1, 1, n + 1) in f32: from both ends to the middle, each product and sum rounded once.
float boundary_of(int index, int n) {
  constexpr float kBegin = 0.1f, kEnd = 1.0f;
  const float step = (kEnd - kBegin) / static_cast<float>(n);
  return index < (n + 1) / 2 ? std::fma(step, static_cast<float>(index), kBegin)
                             : std::fma(-step, static_cast<float>(n - index), kEnd);
}

}  // namespace

std::array<float, 256> dynamic_map_values(bool is_signed) {
  constexpr int kPowers = 7;
  std::array<float, 256> values{};
  std::size_t count = 0;
  for (int power = 0; power < kPowers; ++power) {
    const int fractions = 1 << (is_signed ? power : power + 1);
    const auto scale = static_cast<float>(std::pow(10.0, power - (kPowers - 1)));
    for (int i = 0; i < fractions; ++i) {
      const float mean = (boundary_of(i, fractions) + boundary_of(i + 1, fractions)) / 2.0f;
      values[count++] = scale * mean;
      if (is_signed) values[count++] = -scale * mean;
    }
  }
  values[count++] = 0.0f;
  values[count++] = 1.0f;
  HEDDLE_CHECK(count == values.size());
  std::sort(values.begin(), values.end());
  return values;
}

}  // namespace heddle
