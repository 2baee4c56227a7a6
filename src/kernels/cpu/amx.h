#pragma once

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__)
#define HEDDLE_AMX 1
#else
#define HEDDLE_AMX 0
#endif

namespace heddle::cpu {

/// What multiplies 16 rows of 32 terms by as many columns at once in matrix products of bf16: TDPBF16PS of Intel's
/// manual. To a sum it adds 32 terms so: the sum of the first, third, ... and that of the second, fourth, ..., both in
/// order from zero, are added to each other, then to the sum. Each addition is rounded to nearest even; numbers below
/// 2^-126 are zero. Terms that a block of depth lacks at its end are zeros.
enum class AmxTiles {
  none,       ///< pairs of terms are added one after another, as bf16_pair_sum() says
  processor,  ///< AMX of Sapphire Rapids and later
  emulated,   ///< a loop with AMX's bits, for tests
};

/// That of products now. Not none only where uses_bf16_dot(), whose instructions pack the operands.
AmxTiles amx_tiles();

/// Whether the processor has AMX's instructions for bf16 and the system lets this process use them; then they are used.
bool has_amx();

/// For tests and measurements, between products. `processor` only where has_amx().
void use_amx_tiles(AmxTiles tiles);

}  // namespace heddle::cpu
