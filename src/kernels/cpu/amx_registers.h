#pragma once

#include <cstdint>

#include "kernels/cpu/amx.h"

/// The eight tile registers of a thread: up to 16 rows of up to 64 bytes each. Of a product's tiles, a row of A holds
/// 32 terms of bf16, a row of B two terms of each of 16 columns, a row of sums 16 of f32.
namespace heddle::cpu {

inline constexpr std::int64_t kAmxRows = 16, kAmxColumns = 16, kAmxDepth = 32;
inline constexpr std::int64_t kAmxRowBytes = 64, kAmxRowWords = 16;

/// Words of a row or column of a depth block, two terms each: whole steps of kAmxDepth.
constexpr std::int64_t amx_words(std::int64_t depth) { return (depth + kAmxDepth - 1) / kAmxDepth * kAmxRowWords; }

/// What LDTILECFG reads: rows and bytes of a row for each tile.
struct alignas(64) AmxConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};

  constexpr AmxConfig& set(int tile, std::int64_t row_count, std::int64_t bytes) {
    rows[tile] = static_cast<std::uint8_t>(row_count);
    row_bytes[tile] = static_cast<std::uint16_t>(bytes);
    return *this;
  }
};
static_assert(sizeof(AmxConfig) == 64);

#if HEDDLE_AMX
/// The processor's. In assembly: g++ 12's intrinsics tell the compiler neither that a tile's memory is read nor that a
/// configuration has 64 bytes.
struct AmxRegisters {
  static void configure(const AmxConfig& config) { asm volatile("ldtilecfg %0" : : "m"(config) : "memory"); }
  /// Behind this the thread has no state that a switch to another would have to save.
  static void release() { asm volatile("tilerelease" : : : "memory"); }
  template <int kTile>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  /// Rows are `stride` bytes apart.
  template <int kTile>
  static void load(const void* from, std::int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  static void store(void* to, std::int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(kTile) : "memory");
  }
  /// kSum += kA * kB
  template <int kSum, int kA, int kB>
  static void multiply() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
  }
};

/// The same without AMX, after Intel's manual, for tests. Checks what the processor would not do.
struct EmulatedAmxRegisters {
  static void configure(const AmxConfig& config);
  static void release();
  template <int kTile>
  static void zero() {
    zero_tile(kTile);
  }
  template <int kTile>
  static void load(const void* from, std::int64_t stride) {
    load_tile(kTile, from, stride);
  }
  template <int kTile>
  static void store(void* to, std::int64_t stride) {
    store_tile(kTile, to, stride);
  }
  template <int kSum, int kA, int kB>
  static void multiply() {
    multiply_tiles(kSum, kA, kB);
  }

 private:
  static void zero_tile(int tile);
  static void load_tile(int tile, const void* from, std::int64_t stride);
  static void store_tile(int tile, void* to, std::int64_t stride);
  static void multiply_tiles(int sum, int a, int b);
};

/// Tiles of a thread, of these sizes.
template <class Registers>
class AmxScope {
 public:
  explicit AmxScope(const AmxConfig& config) { Registers::configure(config); }
  ~AmxScope() { Registers::release(); }
  AmxScope(const AmxScope&) = delete;
  AmxScope& operator=(const AmxScope&) = delete;
};
#endif

}  // namespace heddle::cpu
