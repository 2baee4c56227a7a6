// The inner loops of the matrix product for factors of f32 and of bf16. Overwrites what it is given to write; nothing
// is added to but partial sums.
#include "kernels/cpu/matmul_kernels.h"

// Scalable vectors cannot stand in arrays, as the registers of a tile do; processors with SVE have NEON too.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul_kernels.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <algorithm>

#include "kernels/cpu/bf16_dot.h"
#include "kernels/cpu/matmul_bf16_amx-inl.h"
#include "kernels/cpu/matmul_bf16_dot-inl.h"
#include "kernels/cpu/matmul_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {
namespace {

/// sum (+)= the terms of one depth.
template <int kRows, int kVectors>
HWY_INLINE void add_depth(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b,
                          FloatVector (&sum)[kRows][kVectors]) {
  const FloatTag d;
  FloatVector row[kVectors];
  HWY_UNROLL(4)
  for (int j = 0; j < kVectors; ++j) row[j] = hn::Load(d, b + j * kTileLanes);
  HWY_UNROLL(16)
  for (int i = 0; i < kRows; ++i) {
    const FloatVector element = hn::Set(d, a[i]);
    HWY_UNROLL(4)
    for (int j = 0; j < kVectors; ++j) sum[i][j] = hn::MulAdd(element, row[j], sum[i][j]);
  }
}

template <int kRows, int kVectors>
struct Tile {
  static void multiply(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, std::int64_t depth, bool add,
                       float* HWY_RESTRICT sums, std::int64_t stride) {
    FloatVector sum[kRows][kVectors];
    clear_tile(sum);
    for (std::int64_t k = 0; k < depth; ++k, a += kRowTile, b += kColumnTile) add_depth(a, b, sum);
    store_tile(sum, add, sums, stride);
  }
};

/// Factors in f32, their terms added in order.
struct Float32Factors {
  static constexpr std::int64_t kDepthStep = 1, kWordsPerStep = 1;
  static constexpr TileFunctions kTiles = tile_functions<Tile>();

  template <std::int64_t kTile>
  static void pack(const MatrixOperand& matrix, std::int64_t tile_stride, std::int64_t depth_stride,
                   std::int64_t extent, std::int64_t depth, float* packed) {
    pack_matrix<kTile>(matrix, tile_stride, depth_stride, extent, depth, packed);
  }
  template <std::int64_t kTile>
  static void pack_quantized(const MatrixOperand& b, const QuantizedReader& reader, std::int64_t columns,
                             std::int64_t depth, float* packed) {
    cpu::HWY_NAMESPACE::pack_quantized<kTile>(b, reader, columns, depth, packed);
  }
};

/// The second term of each pair first: PairSum::one_by_one.
template <int kRows, int kVectors>
struct PairedTile {
  static void multiply(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, std::int64_t depth, bool add,
                       float* HWY_RESTRICT sums, std::int64_t stride) {
    FloatVector sum[kRows][kVectors];
    clear_tile(sum);
    for (std::int64_t k = 0; k + 2 <= depth; k += 2, a += 2 * kRowTile, b += 2 * kColumnTile) {
      add_depth(a + kRowTile, b + kColumnTile, sum);
      add_depth(a, b, sum);
    }
    if (depth % 2 != 0) add_depth(a, b, sum);
    store_tile(sum, add, sums, stride);
  }
};

/// Factors in bf16 where no instruction multiplies them: packed as f32. Others are rounded behind the packing.
struct BFloat16Factors {
  static constexpr std::int64_t kDepthStep = 1, kWordsPerStep = 1;
  static constexpr TileFunctions kTiles = tile_functions<PairedTile>();

  static void round(std::int64_t extent, std::int64_t tile, std::int64_t depth, float* packed) {
    map((extent + tile - 1) / tile * tile * depth, packed, packed,
        [](FloatTag d, FloatVector v) HWY_ATTR { return round_to_bf16(d, v); });
  }
  template <std::int64_t kTile>
  static void pack(const MatrixOperand& matrix, std::int64_t tile_stride, std::int64_t depth_stride,
                   std::int64_t extent, std::int64_t depth, float* packed) {
    pack_matrix<kTile>(matrix, tile_stride, depth_stride, extent, depth, packed);
    if (matrix.dtype != DType::bf16) round(extent, kTile, depth, packed);
  }
  template <std::int64_t kTile>
  static void pack_quantized(const MatrixOperand& b, const QuantizedReader& reader, std::int64_t columns,
                             std::int64_t depth, float* packed) {
    cpu::HWY_NAMESPACE::pack_quantized<kTile>(b, reader, columns, depth, packed);
    round(columns, kTile, depth, packed);
  }
};

}  // namespace

const MatmulKernels& kernels(DType compute_dtype) {
  if (compute_dtype != DType::bf16) return kKernels<VectorFactors<Float32Factors>>;
#if HEDDLE_HAS_AMX_FACTORS
  if (amx_tiles() == AmxTiles::processor) return kKernels<AmxFactors<AmxRegisters>>;
  if (amx_tiles() == AmxTiles::emulated) return kKernels<AmxFactors<EmulatedAmxRegisters>>;
#endif
#if HEDDLE_HAS_BF16_DOT
  if (uses_bf16_dot()) return kKernels<VectorFactors<BFloat16DotFactors>>;
#endif
  return kKernels<VectorFactors<BFloat16Factors>>;
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu {

HWY_EXPORT(kernels);

const MatmulKernels& matmul_kernels(DType compute_dtype) { return HWY_DYNAMIC_DISPATCH(kernels)(compute_dtype); }

}  // namespace heddle::cpu
#endif
