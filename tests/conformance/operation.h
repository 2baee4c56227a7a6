#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/random.h"
#include "ops/kernel.h"
#include "real.h"

namespace heddle::conformance {

/// Types of the operands of a case. For finite differences both are f64: nothing is rounded.
struct Precision {
  DType activation = DType::f32;  ///< A of ops/operations.md
  DType single = DType::f32;      ///< what is f32 in every run
};

/// One operand of a call, and what its memory holds before it.
struct Operand {
  DType dtype = DType::f32;
  Shape shape;
  std::vector<double> values;  ///< representable in dtype; empty: NaN everywhere (outputs that must be overwritten)
  bool present = true;
  bool compared = true;                ///< false: workspace, whose contents mean nothing
  std::vector<std::byte> stored = {};  ///< the bytes of a quantized operand; `values` are what they stand for

  double operator[](std::int64_t i) const { return values[static_cast<std::size_t>(i)]; }
};

/// One call of an operation.
struct Case {
  std::string name;
  std::vector<Operand> in, out;
  Attributes attributes;
  Scalars scalars;
  std::vector<Operand> unseen = {};  ///< inputs of the forward that its backward does not take; for finite differences

  Operand& variable(std::size_t i) { return i < in.size() ? in[i] : unseen[i - in.size()]; }
};

/// Outputs in the order of the declaration; an empty list for what is absent or not compared.
using Outputs = std::vector<std::vector<Real>>;

struct Alias {
  std::size_t output, input;
};

/// A derivative that a backward operation computes: of the objective, with respect to Case::variable(input).
struct Derivative {
  std::size_t output, input;
};

/// An operation as the harness knows it.
struct Operation {
  std::string_view name;
  /// Small cases over odd shapes. All randomness is fixed.
  std::vector<Case> (*cases)(Precision) = nullptr;
  /// Plain, to be read.
  Outputs (*reference)(const Case&) = nullptr;
  /// Each entry is run: outputs that share memory with inputs at the same time.
  std::vector<std::vector<Alias>> aliases = {};
  std::vector<DType> precisions = {DType::f32, DType::bf16, DType::f16};

  /// Backward operations: sum of cotangent * forward output as a function of the inputs of the backward, by the
  /// forward's reference; saved statistics are computed anew.
  double (*objective)(const Case&) = nullptr;
  std::vector<Derivative> derivatives = {};

  /// A case of the size that training has; its floating-point operations, unless memory bounds it; and the bytes it
  /// reads and writes, unless that is every operand once (twice for outputs that have contents).
  Case (*large)(Precision) = nullptr;
  double (*flops)(const Case&) = nullptr;
  double (*bytes)(const Case&) = nullptr;
};

// What generators are made of.

/// Normal numbers times `scale`, rounded to `dtype`; `stream` keeps operands apart.
Operand random(DType dtype, Shape shape, std::uint64_t stream, double scale = 1.0);
/// Values given in double, rounded to `dtype`.
Operand given(DType dtype, Shape shape, std::vector<double> values);
/// A quantized input: normal numbers times `scale`, encoded.
Operand random_quantized(DType dtype, Shape shape, std::uint64_t stream, double scale = 1.0);
/// Types of random_quantized(): one of each way of keeping scales.
inline constexpr DType kQuantized[] = {DType::q4_0, DType::q5_1, DType::q8_0, DType::nf4, DType::nf4_double};
/// Whole numbers below `bound`.
Operand random_ids(Shape shape, std::int64_t bound, std::uint64_t stream);
/// An output that is overwritten.
Operand output(DType dtype, Shape shape);
Operand workspace(Shape shape);
Operand absent(DType dtype = DType::f32);
/// A gradient output of `shape` under each mode of `accumulate`: holds NaN where it must be overwritten.
Operand gradient_output(Precision precision, Shape shape, Accumulate mode, bool first_micro_batch,
                        std::uint64_t stream);
/// What a gradient output held, where the call adds to it; else 0.
double initial(const Case& c, std::size_t output, std::int64_t i);
bool case_adds(const Case& c);

/// f(i) for i in [0, n).
template <typename Function>
std::vector<Real> elements(std::int64_t n, const Function& f) {
  std::vector<Real> list(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) list[static_cast<std::size_t>(i)] = f(i);
  return list;
}
/// Sum of a * b over their elements: the objective that makes `a` the cotangent of `b`.
double inner_product(const Operand& a, const std::vector<Real>& b);
/// Values of a reference as an operand.
Operand rounded(DType dtype, Shape shape, const std::vector<Real>& values);

/// All operations, by topic; each function stands in the file of its name.
std::vector<Operation> embedding_operations();
std::vector<Operation> norm_operations();
std::vector<Operation> activation_operations();
std::vector<Operation> elementwise_operations();
std::vector<Operation> optimizer_operations();
std::vector<Operation> update_operations();
std::vector<Operation> linear_operations();
std::vector<Operation> position_operations();
std::vector<Operation> attention_operations();
std::vector<Operation> cross_entropy_operations();
std::vector<Operation> preference_operations();
std::vector<Operation> dora_operations();
const std::vector<Operation>& operations();

}  // namespace heddle::conformance
