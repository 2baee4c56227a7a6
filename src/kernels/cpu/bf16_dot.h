#pragma once

namespace heddle::cpu {

/// Whether products of bf16 use the processor's instruction for them (AVX512-BF16's vdpbf16ps): it has one, and it is
/// allowed. Without it they are converted to f32 as they are packed, and have the same bits: the instruction adds the
/// terms of a pair one after the other, as matmul does everywhere. Only numbers below 2^-126 differ, which it takes as
/// zero.
bool uses_bf16_dot();

/// For tests and measurements, between products; allowed at first.
void allow_bf16_dot(bool allowed);

}  // namespace heddle::cpu
