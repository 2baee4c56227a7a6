#pragma once

// Include before any header of Highway, in attention*.cpp. As targets.h, less the instruction sets whose vectors have
// no size at compile time and cannot stand in arrays (SVE machines run the NEON code), and less AVX3_DL, which adds
// nothing that attention uses.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif
