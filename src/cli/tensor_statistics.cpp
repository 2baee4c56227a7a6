#include "cli/tensor_statistics.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "formats/tensor_values.h"
#include "quantize/decode.h"

namespace heddle::cli {
namespace {

/// To fp32 without loss.
bool is_exact_in_f32(DType dtype) {
  return is_quantized(dtype) || dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}

}  // namespace

bool has_numbers(DType dtype) { return is_decodable(dtype) && dtype != DType::c64; }

void decode_numbers(DType dtype, std::span<const std::byte> bytes, std::int64_t count, std::vector<double>& numbers) {
  HEDDLE_CHECK(has_numbers(dtype));
  numbers.resize(static_cast<std::size_t>(count));
  if (is_exact_in_f32(dtype)) {
    std::vector<float> values(numbers.size());
    decode(dtype, bytes.data(), count, 0, count, values.data());
    std::copy(values.begin(), values.end(), numbers.begin());
    return;
  }
  Json values = Json::array();
  append_values(dtype, bytes, values);
  HEDDLE_CHECK(values.size() == numbers.size());
  std::transform(values.begin(), values.end(), numbers.begin(), [](const Json& value) {
    return value.is_boolean() ? static_cast<double>(value.get<bool>()) : value.get<double>();
  });
}

void Statistics::add(std::span<const double> numbers) {
  std::int64_t count = 0;
  double sum = 0;
  for (const double number : numbers) {
    if (std::isnan(number)) {
      ++nan_;
    } else if (std::isinf(number)) {
      ++infinite_;
    } else {
      ++count;
      sum += number;
      min_ = std::min(min_, number);
      max_ = std::max(max_, number);
    }
  }
  if (count == 0) return;
  const double mean = sum / static_cast<double>(count);
  double squares = 0;
  for (const double number : numbers) {
    if (std::isfinite(number)) squares += (number - mean) * (number - mean);
  }
  const double before = static_cast<double>(count_), added = static_cast<double>(count), all = before + added;
  const double apart = mean - mean_;
  mean_ += apart * added / all;
  squares_ += squares + apart * apart * before * added / all;
  count_ += count;
}

double Statistics::deviation() const { return count_ == 0 ? 0 : std::sqrt(squares_ / static_cast<double>(count_)); }

}  // namespace heddle::cli
