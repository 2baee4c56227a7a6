#include "comm/fold.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/error.h"

namespace heddle {
namespace {

/// Elements summed at a time: the sums stay in the first-level cache while each source streams by once. A copy of their
/// own keeps them apart from the sources, one of which may be the target.
constexpr std::size_t kBlock = 1024;

template <typename T>
T load(const std::byte* address, std::size_t index) {
  T value;
  std::memcpy(&value, address + index * sizeof(T), sizeof(T));
  return value;
}

struct Sum {
  template <typename T>
  T operator()(T left, T right) const {
    if constexpr (std::is_integral_v<T>) {
      using Unsigned = std::make_unsigned_t<T>;  // wraps where a signed sum would be undefined
      return static_cast<T>(static_cast<Unsigned>(left) + static_cast<Unsigned>(right));
    } else {
      return left + right;
    }
  }
};

struct Max {
  template <typename T>
  T operator()(T left, T right) const {
    if constexpr (std::is_floating_point_v<T>) {
      return right > left || std::isnan(right) ? right : left;  // a NaN stays: nothing is greater than it
    } else {
      return std::max(left, right);
    }
  }
};

template <typename T, typename Combine>
void fold_as(std::byte* target, std::span<const std::byte* const> sources, const std::byte* base, std::size_t bytes,
             Combine combine) {
  T sums[kBlock];
  for (std::size_t done = 0; done < bytes; done += sizeof(sums)) {
    const std::size_t block_bytes = std::min(sizeof(sums), bytes - done), elements = block_bytes / sizeof(T);
    std::memcpy(sums, (base != nullptr ? base : sources[0]) + done, block_bytes);
    for (std::size_t s = base != nullptr ? 0 : 1; s < sources.size(); ++s) {
      const std::byte* source = sources[s] + done;
      for (std::size_t k = 0; k < elements; ++k) sums[k] = combine(sums[k], load<T>(source, k));
    }
    std::memcpy(target + done, sums, block_bytes);
  }
}

template <typename Combine>
void fold_with(DType dtype, std::byte* target, std::span<const std::byte* const> sources, const std::byte* base,
               std::size_t bytes, Combine combine) {
  switch (dtype) {
    case DType::f32: return fold_as<float>(target, sources, base, bytes, combine);
    case DType::f64: return fold_as<double>(target, sources, base, bytes, combine);
    case DType::i32: return fold_as<std::int32_t>(target, sources, base, bytes, combine);
    case DType::i64: return fold_as<std::int64_t>(target, sources, base, bytes, combine);
    default: fail("internal: {} values are not added up over ranks", torch_name(dtype));
  }
}

}  // namespace

bool can_fold(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::i32 || dtype == DType::i64;
}

void fold(DType dtype, Reduction reduction, std::byte* target, std::span<const std::byte* const> sources,
          const std::byte* base, std::size_t bytes) {
  if (reduction == Reduction::sum) {
    fold_with(dtype, target, sources, base, bytes, Sum{});
  } else {
    fold_with(dtype, target, sources, base, bytes, Max{});
  }
}

}  // namespace heddle
