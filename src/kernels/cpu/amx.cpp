#include "kernels/cpu/amx.h"

#include <atomic>

#include "base/error.h"
#include "kernels/cpu/bf16_dot.h"

#if HEDDLE_AMX
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace heddle::cpu {
namespace {

#if HEDDLE_AMX
/// Bits of Intel's manual: XCR0 says what the system saves of a thread, and palette 1 what a tile is.
bool has_instructions() {
  constexpr unsigned kXsave = 1u << 27, kAmxBf16 = 1u << 22, kAmxTile = 1u << 24, kTileState = 3u << 17;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || (ecx & kXsave) == 0) return false;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  if ((edx & kAmxBf16) == 0 || (edx & kAmxTile) == 0) return false;
  unsigned saved = 0, saved_high = 0;
  asm volatile("xgetbv" : "=a"(saved), "=d"(saved_high) : "c"(0));
  if ((saved & kTileState) != kTileState) return false;
  if (__get_cpuid_count(0x1d, 1, &eax, &ebx, &ecx, &edx) == 0) return false;
  const unsigned tile_bytes = eax >> 16, row_bytes = ebx & 0xffff, tiles = ebx >> 16, rows = ecx & 0xffff;
  return tile_bytes == 1024 && row_bytes == 64 && tiles == 8 && rows == 16;
}

/// Linux gives tiles to processes that ask for them, since 5.16.
bool is_permitted() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM of newer headers
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

std::atomic<AmxTiles>& tiles_in_use() {
  static std::atomic<AmxTiles> tiles = has_amx() ? AmxTiles::processor : AmxTiles::none;
  return tiles;
}

}  // namespace

bool has_amx() {
#if HEDDLE_AMX
  static const bool has = has_instructions() && is_permitted();
  return has;
#else
  return false;
#endif
}

AmxTiles amx_tiles() {
  if (HEDDLE_AMX == 0 || !uses_bf16_dot()) return AmxTiles::none;
  return tiles_in_use().load(std::memory_order_relaxed);
}

void use_amx_tiles(AmxTiles tiles) {
  HEDDLE_CHECK(tiles != AmxTiles::processor || has_amx());
  tiles_in_use().store(tiles, std::memory_order_relaxed);
}

}  // namespace heddle::cpu
