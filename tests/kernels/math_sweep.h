#pragma once

#include "base/dtype.h"

namespace heddle::test {

/// The vector functions of kernels/cpu/math-inl.h, by name of what they compute, on n floats; with the best instruction
/// set that is allowed at the time.
enum class VectorFunction { exp, tanh, logistic, logistic_slope, normal, normal_density };
void apply(VectorFunction function, int n, const float* x, float* y);

/// Elements through kernels/cpu/simd-inl.h: to f32 and from f32, n of them.
void widen(int n, const BFloat16* from, float* to);
void widen(int n, const Float16* from, float* to);
void narrow(int n, const float* from, BFloat16* to);
void narrow(int n, const float* from, Float16* to);

}  // namespace heddle::test
