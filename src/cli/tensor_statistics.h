#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/dtype.h"

namespace heddle::cli {

/// Whether decode_numbers() knows the type: all but complex and packed ones, and those that are not is_decodable().
bool has_numbers(DType dtype);
/// The elements as numbers; truth values are 0 and 1.
void decode_numbers(DType dtype, std::span<const std::byte> bytes, std::int64_t count, std::vector<double>& numbers);

/// Of the finite numbers of a tensor, gathered piece by piece (Chan, Golub, LeVeque 1979: mean and squared deviations
/// of each piece, then merged).
class Statistics {
 public:
  void add(std::span<const double> numbers);

  std::int64_t count() const { return count_; }
  std::int64_t nan() const { return nan_; }
  std::int64_t infinite() const { return infinite_; }
  double min() const { return min_; }
  double max() const { return max_; }
  double mean() const { return mean_; }
  /// The root of the mean squared deviation.
  double deviation() const;

 private:
  std::int64_t count_ = 0, nan_ = 0, infinite_ = 0;
  double min_ = std::numeric_limits<double>::infinity(), max_ = -std::numeric_limits<double>::infinity();
  double mean_ = 0, squares_ = 0;
};

}  // namespace heddle::cli
