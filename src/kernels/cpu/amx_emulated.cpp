// Tile registers in memory, for tests of what is made of them. TDPBF16PS as the Intel 64 and IA-32 Architectures
// Software Developer's Manual defines it.
#include "kernels/cpu/amx_registers.h"

#if HEDDLE_AMX

#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>

#include "base/dtype.h"
#include "base/error.h"

// Processors that pack for AMX have both; without them each fused multiply-add is a call.
#define HEDDLE_WITH_FMA __attribute__((target("avx2,fma")))

namespace heddle::cpu {
namespace {

constexpr int kTiles = 8;

struct Tile {
  alignas(64) std::byte rows[kAmxRows][kAmxRowBytes] = {};
};
struct Registers {
  AmxConfig config;
  Tile tiles[kTiles];
};

/// None between release() and configure().
std::unique_ptr<Registers>& registers() {
  static thread_local std::unique_ptr<Registers> of_thread;
  return of_thread;
}

/// A tile that the configuration has.
Tile& tile_of(int tile) {
  Registers* all = registers().get();
  HEDDLE_CHECK(all != nullptr && tile >= 0 && tile < kTiles);
  HEDDLE_CHECK(all->config.rows[tile] > 0);
  return all->tiles[tile];
}

HEDDLE_WITH_FMA inline float flush(float value) {
  return std::abs(value) < 0x1p-126f ? std::copysign(0.0f, value) : value;
}

/// Tiny is what lies below 2^-126 when it is rounded to 24 bits, as everywhere on x86; f32 itself has fewer there.
/// Around that bound the sum in double is exact: a product of bf16 has 16 bits.
HEDDLE_WITH_FMA inline float multiply_add(float a, float b, float sum) {
  const double exact = std::fma(static_cast<double>(a), static_cast<double>(b), static_cast<double>(sum));
  if (std::abs(exact) < 0x1p-126 - 0x1p-151) return std::copysign(0.0f, static_cast<float>(exact));
  return std::fma(a, b, sum);
}

HEDDLE_WITH_FMA inline float element(const std::byte* row, std::int64_t index) {
  BFloat16 value;
  std::memcpy(&value, row + index * 2, sizeof(value));
  return flush(static_cast<float>(value));
}

HEDDLE_WITH_FMA void multiply_row(const std::byte* a, const Tile& b, std::int64_t pairs, std::int64_t columns,
                                  std::byte* sums) {
  float of_halves[2][kAmxColumns] = {};
  for (std::int64_t k = 0; k < pairs; ++k) {
    for (std::int64_t half = 0; half < 2; ++half) {
      const float left = element(a, 2 * k + half);
      for (std::int64_t n = 0; n < columns; ++n) {
        float& sum = of_halves[half][n];
        sum = multiply_add(left, element(b.rows[k], 2 * n + half), sum);
      }
    }
  }
  for (std::int64_t n = 0; n < columns; ++n) {
    float sum;
    std::memcpy(&sum, sums + n * 4, sizeof(sum));
    sum = flush(flush(sum) + flush(of_halves[0][n] + of_halves[1][n]));
    std::memcpy(sums + n * 4, &sum, sizeof(sum));
  }
}

}  // namespace

void EmulatedAmxRegisters::configure(const AmxConfig& config) {
  HEDDLE_CHECK(registers() == nullptr);
  HEDDLE_CHECK(config.palette == 1 && config.start_row == 0);
  for (int tile = 0; tile < 16; ++tile) {
    const int rows = config.rows[tile], bytes = config.row_bytes[tile];
    HEDDLE_CHECK(tile < kTiles ? rows <= kAmxRows && bytes <= kAmxRowBytes && bytes % 4 == 0 : rows == 0);
    HEDDLE_CHECK((rows == 0) == (bytes == 0));
  }
  registers() = std::make_unique<Registers>();
  registers()->config = config;
}

void EmulatedAmxRegisters::release() { registers().reset(); }

void EmulatedAmxRegisters::zero_tile(int tile) { tile_of(tile) = Tile(); }

void EmulatedAmxRegisters::load_tile(int tile, const void* from, std::int64_t stride) {
  Tile& to = tile_of(tile);
  to = Tile();
  const AmxConfig& config = registers()->config;
  for (std::int64_t row = 0; row < config.rows[tile]; ++row) {
    std::memcpy(to.rows[row], static_cast<const std::byte*>(from) + row * stride, config.row_bytes[tile]);
  }
}

void EmulatedAmxRegisters::store_tile(int tile, void* to, std::int64_t stride) {
  const Tile& from = tile_of(tile);
  const AmxConfig& config = registers()->config;
  for (std::int64_t row = 0; row < config.rows[tile]; ++row) {
    std::memcpy(static_cast<std::byte*>(to) + row * stride, from.rows[row], config.row_bytes[tile]);
  }
}

void EmulatedAmxRegisters::multiply_tiles(int sum, int a, int b) {
  Tile &sums = tile_of(sum), &left = tile_of(a), &right = tile_of(b);
  const AmxConfig& config = registers()->config;
  HEDDLE_CHECK(sum != a && sum != b && a != b);
  HEDDLE_CHECK(config.rows[a] == config.rows[sum] && config.row_bytes[b] == config.row_bytes[sum] &&
               config.row_bytes[a] == config.rows[b] * 4);
  for (std::int64_t row = 0; row < config.rows[sum]; ++row) {
    multiply_row(left.rows[row], right, config.rows[b], config.row_bytes[sum] / 4, sums.rows[row]);
  }
}

}  // namespace heddle::cpu

#endif
