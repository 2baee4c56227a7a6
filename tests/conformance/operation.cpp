#include "operation.h"

#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"
#include "quantize/decode.h"
#include "quantize/four_bit.h"

namespace heddle::conformance {

double unit_roundoff(DType type) {
  switch (type) {
    case DType::f64: return 0x1p-53;
    case DType::f32: return 0x1p-24;
    case DType::bf16: return 0x1p-8;
    case DType::f16: return 0x1p-11;
    default: return 0.0;
  }
}

double smallest_subnormal(DType type) {
  switch (type) {
    case DType::f64: return std::numeric_limits<double>::denorm_min();
    case DType::f32: return 0x1p-149;
    case DType::bf16: return 0x1p-133;
    case DType::f16: return 0x1p-24;
    default: return 0.0;
  }
}

double round_to(DType type, double value) {
  switch (type) {
    case DType::f32: return static_cast<double>(static_cast<float>(value));
    case DType::bf16: return static_cast<double>(static_cast<float>(BFloat16(static_cast<float>(value))));
    case DType::f16: return static_cast<double>(static_cast<float>(Float16(static_cast<float>(value))));
    default: return value;
  }
}

Operand given(DType dtype, Shape shape, std::vector<double> values) {
  HEDDLE_CHECK(static_cast<std::int64_t>(values.size()) == shape.elements());
  for (double& value : values) value = round_to(dtype, value);
  return {.dtype = dtype, .shape = shape, .values = std::move(values)};
}

Operand random(DType dtype, Shape shape, std::uint64_t stream, double scale) {
  Random draw(7, stream);
  std::vector<double> values(static_cast<std::size_t>(shape.elements()));
  // Large operands, of timed calls, repeat their first numbers: no one looks at them.
  constexpr std::size_t kDrawn = std::size_t{1} << 20;
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = i < kDrawn ? scale * draw.normal() : values[i - kDrawn];
  return given(dtype, shape, std::move(values));
}

Operand random_quantized(DType dtype, Shape shape, std::uint64_t stream, double scale) {
  const Operand plain = random(DType::f32, shape, stream, scale);
  const std::int64_t elements = shape.elements();
  std::vector<float> values(plain.values.begin(), plain.values.end());
  std::vector<std::byte> bytes(static_cast<std::size_t>(storage_bytes(dtype, elements)));
  if (is_four_bit(dtype)) {
    FourBitEncoder encoder(dtype, elements, bytes);
    encoder.encode(0, values);
    encoder.finish();
  } else {
    encode(dtype, values.data(), elements, bytes.data());
  }
  decode(dtype, bytes.data(), elements, 0, elements, values.data());
  return {.dtype = dtype, .shape = shape, .values = {values.begin(), values.end()}, .stored = std::move(bytes)};
}

Operand random_ids(Shape shape, std::int64_t bound, std::uint64_t stream) {
  Random draw(7, stream);
  std::vector<double> values(static_cast<std::size_t>(shape.elements()));
  for (double& value : values) value = static_cast<double>(draw.below(static_cast<std::uint64_t>(bound)));
  return given(DType::i32, shape, std::move(values));
}

Operand output(DType dtype, Shape shape) { return {.dtype = dtype, .shape = shape, .values = {}}; }

Operand workspace(Shape shape) {
  Operand operand = output(DType::f32, shape);
  operand.compared = false;
  return operand;
}

Operand absent(DType dtype) {
  Operand operand = output(dtype, Shape{0});
  operand.present = false;
  return operand;
}

Operand gradient_output(Precision precision, Shape shape, Accumulate mode, bool first_micro_batch,
                        std::uint64_t stream) {
  const bool adds = mode == Accumulate::add || (mode == Accumulate::add_after_first && !first_micro_batch);
  return adds ? random(precision.single, shape, stream) : output(precision.single, shape);
}

double inner_product(const Operand& a, const std::vector<Real>& b) {
  HEDDLE_CHECK(a.values.size() == b.size());
  double total = 0.0;
  for (std::size_t i = 0; i < b.size(); ++i) total += a.values[i] * b[i].value;
  return total;
}

Operand rounded(DType dtype, Shape shape, const std::vector<Real>& values) {
  std::vector<double> numbers;
  for (const Real& value : values) numbers.push_back(value.value);
  return given(dtype, shape, std::move(numbers));
}

bool case_adds(const Case& c) {
  const auto mode = static_cast<Accumulate>(c.attributes.integer("accumulate"));
  return mode == Accumulate::add || (mode == Accumulate::add_after_first && !c.scalars.first_micro_batch);
}

double initial(const Case& c, std::size_t output, std::int64_t i) { return case_adds(c) ? c.out[output][i] : 0.0; }

const std::vector<Operation>& operations() {
  static const std::vector<Operation> all = [] {
    std::vector<Operation> list;
    for (auto* topic : {embedding_operations, norm_operations, activation_operations, elementwise_operations,
                        optimizer_operations, update_operations, linear_operations, position_operations,
                        attention_operations, cross_entropy_operations, preference_operations, dora_operations}) {
      for (Operation& operation : topic()) list.push_back(std::move(operation));
    }
    return list;
  }();
  return all;
}

}  // namespace heddle::conformance
