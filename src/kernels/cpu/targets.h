#pragma once

// Include before any header of Highway: the instruction sets that kernels are compiled for. Kept are the baseline,
// AVX2, AVX-512 and NEON. Two SSE levels would cost compile time for processors older than 2013. Vectors of SVE have no
// size at compile time, so they cannot stand in arrays, as the parts of sums do; machines with SVE run the NEON code.
#ifndef HWY_DISABLED_TARGETS
#if defined(__aarch64__)
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#else
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#endif
#endif
