#pragma once

// Include before any header of Highway: the instruction sets that kernels are compiled for. Kept are the baseline,
// AVX2, AVX-512, NEON and SVE; the two SSE levels would cost compile time for processors older than 2013.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#endif
