// Attention of one query row against past + 1 cached keys; operands and formula as attention.cpp. Overwrites o and lse.
// The cost is reading the cache once, so the query heads of a group share each key and value read, and lanes are
// dimensions. A work unit is one key-value head and one chunk of keys, whose length depends on shapes alone; the
// chunks' results are merged in order (Dao et al. 2023, "Flash-Decoding"). A thread takes neighbouring units, and of
// those of a chunk it computes one tile after the other: their keys lie side by side in memory, which is read fastest
// in its own order. So the next tile of these heads is brought into the second-level cache from first to last while
// this one is computed, and from there the next head's into the first.
#include "kernels/cpu/attention_decode.h"

#include "kernels/cpu/attention_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_decode.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, which decides what they are compiled for.
#include <hwy/highway.h>

#include "base/threads.h"
#include "kernels/cpu/attention_tiles-inl.h"
#include "kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {
namespace {

/// Result of one head over one chunk, in shared scratch: [padded] unnormalised output, then maximum and sum.
struct Chunks {
  /// Enough to share them out evenly; merging them is a small part of the work.
  static constexpr std::int64_t kMostChunks = 32;
  float* results;
  std::int64_t floats_per_result;
  std::int64_t first_key;  // the window's, rounded down to a tile
  std::int64_t keys_per_chunk;
  std::int64_t count;

  Chunks(const AttentionCall& a, const Scratch& scratch)
      : results(reinterpret_cast<float*>(scratch.shared)), floats_per_result(a.padded + kRowPadding) {
    const std::int64_t last_key = a.past;
    first_key = tile_of(std::max<std::int64_t>(0, last_key - a.window + 1)) * kTile;
    const std::int64_t keys = last_key + 1 - first_key;
    const auto room = static_cast<std::int64_t>(scratch.shared_bytes / sizeof(float)) / (floats_per_result * a.heads);
    HEDDLE_CHECK(room >= 1);
    keys_per_chunk = 2 * kTile;
    while ((keys + keys_per_chunk - 1) / keys_per_chunk > std::min(room, kMostChunks)) keys_per_chunk *= 2;
    count = (keys + keys_per_chunk - 1) / keys_per_chunk;
  }
  Range keys_of(std::int64_t chunk, const AttentionCall& a) const {
    const std::int64_t begin = first_key + chunk * keys_per_chunk;
    return {begin, std::min(begin + keys_per_chunk, a.past + 1)};
  }
  /// How many units make up the first of so many equal parts of all keys, about: the last chunk may be short.
  std::int64_t units_before(const AttentionCall& a, std::int64_t part, std::int64_t parts) const {
    const std::int64_t last = keys_of(count - 1, a).count(), whole_units = (count - 1) * a.kv_heads;
    const std::int64_t in_whole = whole_units * keys_per_chunk, keys = (in_whole + a.kv_heads * last) * part / parts;
    if (keys < in_whole) return (keys + keys_per_chunk / 2) / keys_per_chunk;
    return whole_units + (keys - in_whole + last / 2) / last;
  }
  float* result(std::int64_t chunk, std::int64_t heads, std::int64_t head) const {
    return results + (chunk * heads + head) * floats_per_result;
  }
};

/// Query heads that share a key and a value that is read; their sums fit the registers.
constexpr std::int64_t kMostHeads = 4;

/// Brings a row near: into the first-level cache, or (2) the second.
template <int kLevel, typename T>
HWY_INLINE void prefetch_row(const T* row, std::int64_t columns) {
  constexpr std::int64_t kLine = 64 / static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t c = 0; c < columns; c += kLine) __builtin_prefetch(row + c, 0, kLevel == 1 ? 3 : 2);
}

#if HWY_TARGET != HWY_SCALAR
/// The sum of 128-bit blocks.
template <class D>
HWY_INLINE void store_sum_of_blocks(D d, hn::Vec<D> v, float* to) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    hn::StoreU(v, d, to);
  } else {
    const hn::Half<D> half;
    store_sum_of_blocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), to);
  }
}
#endif

/// to[i] = the sum of v[i]'s lanes.
HWY_INLINE void store_sums_of_lanes(const FloatVector (&v)[4], float* to) {
  const FloatTag d;
#if HWY_TARGET == HWY_SCALAR
  for (int i = 0; i < 4; ++i) to[i] = sum_lanes(d, v[i]);
#else
  const hn::Repartition<double, FloatTag> pairs;
  const auto low = hn::Add(hn::InterleaveLower(d, v[0], v[1]), hn::InterleaveUpper(d, v[0], v[1]));
  const auto high = hn::Add(hn::InterleaveLower(d, v[2], v[3]), hn::InterleaveUpper(d, v[2], v[3]));
  const auto first = hn::InterleaveLower(pairs, hn::BitCast(pairs, low), hn::BitCast(pairs, high));
  const auto second = hn::InterleaveUpper(pairs, hn::BitCast(pairs, low), hn::BitCast(pairs, high));
  store_sum_of_blocks(d, hn::Add(hn::BitCast(d, first), hn::BitCast(d, second)), to);
#endif
}

/// One head's rows of the key or value cache that make up a tile.
template <typename T>
struct CacheTile {
  const T* first;
  std::int64_t stride, columns, count;

  CacheTile(const TensorView& cache, std::int64_t begin, std::int64_t rows, std::int64_t head)
      : first(cache.as<const T>() + (begin * cache.shape[1] + head) * cache.shape[2]),
        stride(cache.shape[1] * cache.shape[2]),
        columns(cache.shape[2]),
        count(rows) {}
  const T* row(std::int64_t r) const { return first + r * stride; }
  HWY_INLINE void prefetch(std::int64_t r) const {  // a call that only does this would be optimised away
    if (r < count) prefetch_row<1>(row(r), columns);
  }
};

/// Keys and values of a tile: those of a range that begins in it.
template <typename T>
struct TilePair {
  CacheTile<T> keys, values;

  TilePair(const KernelCall& call, Range range, std::int64_t head)
      : keys(call.in[1], range.begin, std::min(kTile, range.count()), head),
        values(call.in[2], range.begin, std::min(kTile, range.count()), head) {}
};

/// Keys and values of a tile of some neighbouring heads; none, where there are no heads.
struct Tile {
  std::int64_t chunk = 0;
  Range keys = {0, 0}, heads = {0, 0};
  bool begins_chunk = false;
};

/// The tiles that a thread computes: of its units those of a chunk side by side, most_heads of them.
class Tiles {
 public:
  Tiles(const AttentionCall& a, const Chunks& chunks, Range units, std::int64_t most_heads)
      : a_(a), chunks_(chunks), units_(units), most_heads_(most_heads) {}

  Tile take() {
    const bool begins_chunk = keys_.count() <= 0;
    if (begins_chunk) {
      units_.begin += heads_;
      if (units_.count() <= 0) return {};
      const std::int64_t first = units_.begin % a_.kv_heads;
      heads_ = std::min({a_.kv_heads - first, units_.count(), most_heads_});
      keys_ = chunks_.keys_of(units_.begin / a_.kv_heads, a_);
    }
    const std::int64_t first = units_.begin % a_.kv_heads, begin = keys_.begin;
    keys_.begin += kTile;
    return {
        units_.begin / a_.kv_heads, {begin, std::min(begin + kTile, keys_.end)}, {first, first + heads_}, begins_chunk};
  }

 private:
  const AttentionCall& a_;
  const Chunks& chunks_;
  Range units_, keys_ = {0, 0};  // what is left: heads_ of the units are under way
  const std::int64_t most_heads_;
  std::int64_t heads_ = 0;
};

/// Rows of the cache, of some heads, brought near in the order of memory, some at each of so many steps.
template <typename T>
class ComingRows {
 public:
  ComingRows(const TensorView& cache, const Tile& tile, std::int64_t steps)
      : rows_(cache, tile.keys.begin, tile.keys.count(), tile.heads.begin),
        columns_(rows_.columns * tile.heads.count()),
        rows_per_step_((rows_.count + steps - 1) / steps) {}
  HWY_INLINE void step() {
    const std::int64_t end = std::min(rows_.count, row_ + rows_per_step_);
    for (; row_ < end; ++row_) prefetch_row<2>(rows_.row(row_), columns_);
  }

 private:
  const CacheTile<T> rows_;
  const std::int64_t columns_, rows_per_step_;
  std::int64_t row_ = 0;
};

/// The next tile: its keys come near while this one's scores are computed, its values while its values are added.
template <typename T>
struct ComingTile {
  ComingRows<T> keys, values;

  ComingTile(const KernelCall& call, const Tile& tile, std::int64_t key_steps, std::int64_t value_steps)
      : keys(call.in[1], tile, key_steps), values(call.in[2], tile, value_steps) {}
};

/// Whether values of the next head are brought near with its keys: this pair of tiles and the next fit the first-level
/// cache. Where they do not, as in fp32, values come later: measured, either is worse for the other type.
template <typename T>
constexpr bool kBringsPair = sizeof(T) <= 2;

/// Keys whose sums are in registers at once, with those of all heads.
constexpr std::int64_t kKeysTogether = hn::MaxLanes(FloatTag()) == 8 ? 2 : 4;  // AVX2 has half as many registers

/// sums[h][i] += queries[h] * keys[i] from column c on, lane by lane.
template <std::int64_t kHeads, typename T, typename Extent>
HWY_INLINE void add_products(const float* queries, std::int64_t padded, const T* const* keys, std::int64_t c,
                             Extent extent, FloatVector (&sums)[kHeads][kKeysTogether]) {
  const FloatTag d;
  FloatVector key[kKeysTogether];
  HWY_UNROLL(4)
  for (std::int64_t i = 0; i < kKeysTogether; ++i) key[i] = load(d, keys[i] + c, extent);
  HWY_UNROLL(4)
  for (std::int64_t h = 0; h < kHeads; ++h) {
    const auto query = hn::LoadU(d, queries + h * padded + c);
    HWY_UNROLL(4)
    for (std::int64_t i = 0; i < kKeysTogether; ++i) sums[h][i] = hn::MulAdd(query, key[i], sums[h][i]);
  }
}

/// scores[h][j] = queries[h] . keys[j], up to a multiple of four keys: what stands behind the last means nothing.
template <std::int64_t kHeads, typename T>
void score_keys(const CacheTile<T>& keys, const TilePair<T>& next, ComingRows<T>& coming, const float* queries,
                std::int64_t padded, float* scores) {
  const FloatTag d;
  for (std::int64_t j = 0; j < keys.count; j += 4) {
    FloatVector products[kHeads][4];
    coming.step();
    HWY_UNROLL(2)
    for (std::int64_t first = 0; first < 4; first += kKeysTogether) {
      const T* rows[kKeysTogether];
      FloatVector sums[kHeads][kKeysTogether];
      HWY_UNROLL(4)
      for (std::int64_t i = 0; i < kKeysTogether; ++i) {
        next.keys.prefetch(j + first + i);
        if (kBringsPair<T>) next.values.prefetch(j + first + i);
        rows[i] = keys.row(std::min(j + first + i, keys.count - 1));
        HWY_UNROLL(4)
        for (std::int64_t h = 0; h < kHeads; ++h) sums[h][i] = hn::Zero(d);
      }
      for_each_vector(keys.columns, [&](std::int64_t c, auto extent)
                                        HWY_ATTR { add_products<kHeads>(queries, padded, rows, c, extent, sums); });
      HWY_UNROLL(4)
      for (std::int64_t h = 0; h < kHeads; ++h) {
        HWY_UNROLL(4)
        for (std::int64_t i = 0; i < kKeysTogether; ++i) products[h][first + i] = sums[h][i];
      }
    }
    HWY_UNROLL(4)
    for (std::int64_t h = 0; h < kHeads; ++h) store_sums_of_lanes(products[h], scores + h * kTile + j);
  }
}

/// A vector of columns from c on: outputs[h] = outputs[h] * rescale[h] + the values, each times its weights[h][j].
template <std::int64_t kHeads, typename T, typename Extent>
HWY_INLINE void add_columns(const CacheTile<T>& values, std::int64_t c, Extent extent, const float* weights,
                            const float* rescale, float* outputs, std::int64_t stride) {
  const FloatTag d;
  FloatVector even[kHeads], odd[kHeads];  // so that a sum does not wait for its own
  HWY_UNROLL(4)
  for (std::int64_t h = 0; h < kHeads; ++h) even[h] = odd[h] = hn::Zero(d);
  std::int64_t j = 0;
  for (; j + 2 <= values.count; j += 2) {
    const auto first = load(d, values.row(j) + c, extent), second = load(d, values.row(j + 1) + c, extent);
    HWY_UNROLL(4)
    for (std::int64_t h = 0; h < kHeads; ++h) {
      even[h] = hn::MulAdd(hn::Set(d, weights[h * kTile + j]), first, even[h]);
      odd[h] = hn::MulAdd(hn::Set(d, weights[h * kTile + j + 1]), second, odd[h]);
    }
  }
  if (j < values.count) {
    const auto last = load(d, values.row(j) + c, extent);
    HWY_UNROLL(4)
    for (std::int64_t h = 0; h < kHeads; ++h) {
      even[h] = hn::MulAdd(hn::Set(d, weights[h * kTile + j]), last, even[h]);
    }
  }
  HWY_UNROLL(4)
  for (std::int64_t h = 0; h < kHeads; ++h) {
    float* output = outputs + h * stride + c;
    const auto sum = hn::Add(even[h], odd[h]);
    hn::StoreU(hn::MulAdd(hn::LoadU(d, output), hn::Set(d, rescale[h]), sum), d, output);
  }
}

/// The same for all columns. Rows of outputs are apart by `stride`.
template <std::int64_t kHeads, typename T>
void add_values(const CacheTile<T>& values, const CacheTile<T>& next, ComingRows<T>& coming, const float* weights,
                const float* rescale, float* outputs, std::int64_t stride) {
  for (std::int64_t j = 0; j < next.count && !kBringsPair<T>; ++j) next.prefetch(j);
  for_each_vector(values.columns, [&](std::int64_t c, auto extent) HWY_ATTR {
    coming.step();
    add_columns<kHeads>(values, c, extent, weights, rescale, outputs, stride);
  });
}

/// Scores of one head become weights relative to the maximum so far; returns what earlier results are to be scaled by.
float weigh(const AttentionCall& a, std::int64_t key_begin, std::int64_t key_count, float* scores, float& maximum,
            float& sum) {
  const FloatTag d;
  const std::int64_t lanes = float_lanes();
  if (a.softcap > 0.0f) {
    const auto cap = hn::Set(d, a.softcap), inverse_cap = hn::Set(d, 1.0f / a.softcap);
    for (std::int64_t j = 0; j < key_count; j += lanes) {
      hn::StoreU(hn::Mul(cap, tanh(d, hn::Mul(hn::LoadU(d, scores + j), inverse_cap))), d, scores + j);
    }
  }
  constexpr float kHidden = -std::numeric_limits<float>::infinity();
  const std::int64_t hidden = std::clamp<std::int64_t>(a.past - a.window + 1 - key_begin, 0, key_count);
  std::fill(scores, scores + hidden, kHidden);
  std::fill(scores + key_count, scores + kTile, kHidden);
  auto greatest = hn::Set(d, maximum);
  for (std::int64_t j = 0; j < kTile; j += lanes) greatest = hn::Max(greatest, hn::LoadU(d, scores + j));
  const float before = maximum;
  maximum = hn::GetLane(hn::MaxOfLanes(d, greatest));
  auto sums = hn::Zero(d);
  for (std::int64_t j = 0; j < kTile; j += lanes) {
    const auto p = exp(d, hn::Sub(hn::LoadU(d, scores + j), hn::Set(d, maximum)));
    hn::StoreU(p, d, scores + j);
    sums = hn::Add(sums, p);
  }
  const float rescale = sum > 0.0f ? std::exp(before - maximum) : 0.0f;  // nothing yet: exp would be slow to say 0
  sum = sum * rescale + sum_lanes(d, sums);
  return rescale;
}

/// A tile for kHeads heads from `head` on, whose queries follow one another.
template <std::int64_t kHeads, typename T>
void attend_tile(const AttentionCall& a, const TilePair<T>& tile, const TilePair<T>& next, ComingTile<T>& coming,
                 std::int64_t key_begin, const float* queries, float* scores, float* results,
                 std::int64_t floats_per_result) {
  score_keys<kHeads>(tile.keys, next, coming.keys, queries, a.padded, scores);
  float rescale[kHeads];
  for (std::int64_t h = 0; h < kHeads; ++h) {
    float* end = results + h * floats_per_result + a.padded;
    rescale[h] = weigh(a, key_begin, tile.keys.count, scores + h * kTile, end[0], end[1]);
  }
  add_values<kHeads>(tile.values, next.values, coming.values, scores, rescale, results, floats_per_result);
}

/// Queries of a unit's heads [group][padded], times scale; and their results, empty.
void begin_unit(const AttentionCall& a, const KernelCall& call, const Chunks& chunks, std::int64_t chunk,
                std::int64_t first_head, float* queries) {
  for (std::int64_t g = 0; g < a.group; ++g) {
    load_rows(call.in[0], 0, 1, first_head + g, a.scale, queries + g * a.padded, a.padded);
    float* result = chunks.result(chunk, a.heads, first_head + g);
    std::fill(result, result + a.padded, 0.0f);
    result[a.padded] = -1.0e30f;  // maximum: finite, so that differences stay finite before any key is seen
    result[a.padded + 1] = 0.0f;  // sum
  }
}

/// Heads of a tile, so that it and the next one fill half a small second-level cache.
template <typename T>
std::int64_t most_heads(const AttentionCall& a) {
  constexpr std::int64_t kMostBytes = std::int64_t{64} << 10;
  return std::clamp<std::int64_t>(kMostBytes / (2 * kTile * a.padded * static_cast<std::int64_t>(sizeof(T))), 1,
                                  a.kv_heads);
}

/// Work units [begin, end): chunk by chunk, in each head by head.
void attend_units(const AttentionCall& a, const KernelCall& call, const Chunks& chunks, Range units, int thread) {
  with_element_type(call.in[1].dtype, [&](auto* null) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(null)>;
    ScratchPieces pieces(call.scratch, thread);
    const std::int64_t queries_of_head = a.group * a.padded;
    float* queries = pieces.take(most_heads<T>(a) * queries_of_head + 4 * a.padded);
    float* scores = pieces.take(kMostHeads * kTile);
    Tiles tiles(a, chunks, units, most_heads<T>(a));
    Tile tile = tiles.take();
    ComingTile<T> first(call, tile, 1, 1);
    first.keys.step();
    first.values.step();
    while (tile.heads.count() > 0) {
      const Tile next_tile = tiles.take();
      const std::int64_t vectors = (a.head_dim + float_lanes() - 1) / float_lanes();
      ComingTile<T> coming(call, next_tile, tile.heads.count() * ((tile.keys.count() + 3) / 4),
                           tile.heads.count() * vectors);
      for (std::int64_t head = tile.heads.begin; head < tile.heads.end; ++head) {
        float* of_head = queries + (head - tile.heads.begin) * queries_of_head;
        if (tile.begins_chunk) begin_unit(a, call, chunks, tile.chunk, head * a.group, of_head);
        const TilePair<T> pair(call, tile.keys, head);
        const TilePair<T> next = head + 1 < tile.heads.end ? TilePair<T>(call, tile.keys, head + 1)
                                                           : TilePair<T>(call, next_tile.keys, next_tile.heads.begin);
        for (std::int64_t g = 0; g < a.group; g += kMostHeads) {
          const auto attend = [&](auto heads) HWY_ATTR {
            attend_tile<decltype(heads)::value>(a, pair, next, coming, tile.keys.begin, of_head + g * a.padded, scores,
                                                chunks.result(tile.chunk, a.heads, head * a.group + g),
                                                chunks.floats_per_result);
          };
          switch (std::min(kMostHeads, a.group - g)) {
            case 1: attend(std::integral_constant<std::int64_t, 1>()); break;
            case 2: attend(std::integral_constant<std::int64_t, 2>()); break;
            case 3: attend(std::integral_constant<std::int64_t, 3>()); break;
            default: attend(std::integral_constant<std::int64_t, kMostHeads>());
          }
        }
      }
      tile = next_tile;
    }
  });
}

/// From so many on, merging is worth waking other threads.
constexpr std::int64_t kLeastMergedFloats = 1 << 14;

void merge_chunks(const AttentionCall& a, const KernelCall& call, const Chunks& chunks, std::int64_t head) {
  float maximum = -1.0e30f;
  for (std::int64_t chunk = 0; chunk < chunks.count; ++chunk) {
    maximum = std::max(maximum, chunks.result(chunk, a.heads, head)[a.padded]);
  }
  float* total = chunks.result(0, a.heads, head);
  float sum = 0.0f;
  for (std::int64_t chunk = 0; chunk < chunks.count; ++chunk) {
    const float* result = chunks.result(chunk, a.heads, head);
    const float factor = std::exp(result[a.padded] - maximum);
    sum += factor * result[a.padded + 1];
    for (std::int64_t c = 0; c < a.padded; ++c) total[c] = (chunk == 0 ? 0.0f : total[c]) + factor * result[c];
  }
  for (std::int64_t c = 0; c < a.padded; ++c) total[c] /= sum;
  store_rows(total, a.padded, call.out[0], 0, 1, head);
  call.out[1].as<float>()[head] = maximum + std::log(sum);
}

void attention_decode(const KernelCall& call) {
  const AttentionCall a(call, call.in[0], call.in[1], call.in[3]);
  const Chunks chunks(a, call.scratch);
  const std::int64_t parts = threads();
  parallel_for(parts, [&](std::int64_t part, int thread) {
    const Range units = {chunks.units_before(a, part, parts), chunks.units_before(a, part + 1, parts)};
    if (units.count() > 0) attend_units(a, call, chunks, units, thread);
  });
  const auto merge = [&](std::int64_t head, int) { merge_chunks(a, call, chunks, head); };
  if (chunks.count * a.heads * a.padded <= kLeastMergedFloats) {
    for (std::int64_t head = 0; head < a.heads; ++head) merge(head, 0);
  } else {
    parallel_for(a.heads, merge);
  }
}

}  // namespace
}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu {

HWY_EXPORT(attention_decode);

void attention_decode(const KernelCall& call) { HWY_DYNAMIC_DISPATCH(attention_decode)(call); }

}  // namespace heddle::cpu
#endif
