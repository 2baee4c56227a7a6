#pragma once

namespace heddle::cpu {

/// f32 FLOP/s of all threads() together in a loop of independent fused multiply-adds (2 FLOPs each) on registers, by
/// the instruction set that the matrix product uses: the ceiling that products are measured against. Best of several
/// tries in about `seconds`.
double measure_multiply_add_peak(double seconds);

/// The same for factors in bf16: by the processor's instructions for tiles or pairs of them, where amx_tiles() or
/// uses_bf16_dot() say so; elsewhere by those of f32.
double measure_bf16_peak(double seconds);

}  // namespace heddle::cpu
