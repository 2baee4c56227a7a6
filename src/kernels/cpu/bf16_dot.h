#pragma once

// Arm's instructions come with intrinsics that g++ lets a part of a file use; clang 14 only where all of a build may.
#if defined(__aarch64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)
#define HEDDLE_ARM_BF16_DOT 1
#else
#define HEDDLE_ARM_BF16_DOT 0
#endif

namespace heddle::cpu {

/// Whether products of bf16 use the processor's instructions for them (AVX512-BF16's vdpbf16ps; Arm's bfmmla and bfdot,
/// FEAT_BF16): it has them, and they are allowed. Without them bf16 is converted to f32 as it is packed.
bool uses_bf16_dot();

/// For tests and measurements, between products; allowed at first.
void allow_bf16_dot(bool allowed);

/// How the terms of a pair, a product of bf16 each, are added to a sum in f32.
enum class PairSum {
  /// The second, then the first, each sum rounded to nearest even. So do the loops without an instruction and vdpbf16ps
  /// (Intel's manual), with the same bits but for numbers below 2^-126, which the instruction takes as zero.
  one_by_one,
  /// To each other, then to the sum; either is rounded to odd (of the two neighbours of an inexact sum, that whose last
  /// bit is 1), and numbers below 2^-126 are zero. So do Arm's instructions: BFDotAdd in its Architecture Reference
  /// Manual, with FPCR.EBF = 0 as Linux has it.
  to_odd,
};
/// That of products now; not of matrix products where there are amx_tiles().
PairSum bf16_pair_sum();

}  // namespace heddle::cpu
