#pragma once

namespace heddle::cpu {

/// f32 FLOP/s of all threads() together in a loop of independent fused multiply-adds (2 FLOPs each) on registers, by
/// the instruction set that the matrix product uses: the ceiling that products are measured against. Best of several
/// tries in about `seconds`.
double measure_multiply_add_peak(double seconds);

/// The same for factors in bf16: by the processor's instruction for pairs of them, where uses_bf16_dot(); elsewhere by
/// those of f32.
double measure_bf16_peak(double seconds);

}  // namespace heddle::cpu
