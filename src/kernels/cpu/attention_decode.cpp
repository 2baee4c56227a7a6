// Attention of one query row against past + 1 cached keys; operands and formula as attention.cpp. Overwrites o and lse.
// The cost is reading the cache once, so the query heads of a group share each key and value read, and lanes are
// dimensions. A work unit is one key-value head and one chunk of keys, whose length depends on shapes alone; the
// chunks' results are merged in order (Dao et al. 2023, "Flash-Decoding").
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
    keys_per_chunk = 8 * kTile;
    while ((keys + keys_per_chunk - 1) / keys_per_chunk > room) keys_per_chunk *= 2;
    count = (keys + keys_per_chunk - 1) / keys_per_chunk;
  }
  float* result(std::int64_t chunk, std::int64_t heads, std::int64_t head) const {
    return results + (chunk * heads + head) * floats_per_result;
  }
};

/// Query heads that share a key and a value that is read; their sums fit the registers.
constexpr std::int64_t kMostHeads = 4;

/// Brings a row of the next tile near: rows of one head lie apart by those of the others, where no prefetcher of the
/// processor follows. May lie beyond the cache.
template <typename T>
HWY_INLINE void prefetch_row(const T* row, std::int64_t columns) {
  constexpr std::int64_t kLine = 64 / static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t c = 0; c < columns; c += kLine) hwy::Prefetch(row + c);
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
};

/// sums[h] += queries[h] * key, lane by lane.
template <std::int64_t kHeads>
HWY_INLINE void add_products(const float* queries, std::int64_t padded, FloatVector key, FloatVector (&sums)[kHeads]) {
  HWY_UNROLL(4)
  for (std::int64_t h = 0; h < kHeads; ++h) {
    sums[h] = hn::MulAdd(hn::LoadU(FloatTag(), queries + h * padded), key, sums[h]);
  }
}

/// scores[h][j] = queries[h] . keys[j], up to a multiple of four keys: what stands behind the last means nothing.
template <std::int64_t kHeads, typename T>
void score_keys(const CacheTile<T>& keys, const float* queries, std::int64_t padded, float* scores) {
  const FloatTag d;
  const std::int64_t lanes = float_lanes();
  for (std::int64_t j = 0; j < keys.count; j += 4) {
    FloatVector products[kHeads][4];
    for (std::int64_t i = 0; i < 4; ++i) {
      const T* key = keys.row(std::min(j + i, keys.count - 1));
      prefetch_row(key + kTile * keys.stride, keys.columns);
      FloatVector sums[kHeads];
      HWY_UNROLL(4)
      for (std::int64_t h = 0; h < kHeads; ++h) sums[h] = hn::Zero(d);
      std::int64_t c = 0;
      for (; c + lanes <= keys.columns; c += lanes) add_products<kHeads>(queries + c, padded, load(d, key + c), sums);
      if (c < keys.columns) {
        const auto rest = load_first(d, key + c, static_cast<std::size_t>(keys.columns - c));
        add_products<kHeads>(queries + c, padded, rest, sums);
      }
      HWY_UNROLL(4)
      for (std::int64_t h = 0; h < kHeads; ++h) products[h][i] = sums[h];
    }
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
void add_values(const CacheTile<T>& values, const float* weights, const float* rescale, float* outputs,
                std::int64_t stride) {
  for (std::int64_t j = 0; j < values.count; ++j) prefetch_row(values.row(j + kTile), values.columns);
  for_each_vector(values.columns, [&](std::int64_t c, auto extent) HWY_ATTR {
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
  const float rescale = std::exp(before - maximum);
  sum = sum * rescale + sum_lanes(d, sums);
  return rescale;
}

/// A tile for kHeads heads from `head` on, whose queries follow one another.
template <std::int64_t kHeads, typename T>
void attend_tile(const AttentionCall& a, const CacheTile<T>& keys, const CacheTile<T>& values, std::int64_t key_begin,
                 const float* queries, float* scores, float* results, std::int64_t floats_per_result) {
  score_keys<kHeads>(keys, queries, a.padded, scores);
  float rescale[kHeads];
  for (std::int64_t h = 0; h < kHeads; ++h) {
    float* end = results + h * floats_per_result + a.padded;
    rescale[h] = weigh(a, key_begin, keys.count, scores + h * kTile, end[0], end[1]);
  }
  add_values<kHeads>(values, scores, rescale, results, floats_per_result);
}

void attend_chunk(const AttentionCall& a, const KernelCall& call, const Chunks& chunks, std::int64_t chunk,
                  std::int64_t kv_head, int thread) {
  ScratchPieces pieces(call.scratch, thread);
  float* queries = pieces.take((a.group + 4) * a.padded);  // [group][padded], times scale
  float* scores = pieces.take(kMostHeads * kTile);
  const std::int64_t first_head = kv_head * a.group;
  for (std::int64_t g = 0; g < a.group; ++g) {
    load_rows(call.in[0], 0, 1, first_head + g, a.scale, queries + g * a.padded, a.padded);
    float* result = chunks.result(chunk, a.heads, first_head + g);
    std::fill(result, result + a.padded, 0.0f);
    result[a.padded] = -1.0e30f;  // maximum: finite, so that differences stay finite before any key is seen
    result[a.padded + 1] = 0.0f;  // sum
  }
  const std::int64_t begin = chunks.first_key + chunk * chunks.keys_per_chunk;
  const std::int64_t end = std::min(begin + chunks.keys_per_chunk, a.past + 1);
  with_element_type(call.in[1].dtype, [&](auto* null) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(null)>;
    const CacheTile<T> first(call.in[2], begin, std::min(kTile, end - begin), kv_head);
    for (std::int64_t j = 0; j < first.count; ++j) prefetch_row(first.row(j), first.columns);
    for (std::int64_t key_begin = begin; key_begin < end; key_begin += kTile) {
      const std::int64_t count = std::min(kTile, end - key_begin);
      const CacheTile<T> keys(call.in[1], key_begin, count, kv_head), values(call.in[2], key_begin, count, kv_head);
      for (std::int64_t g = 0; g < a.group; g += kMostHeads) {
        const auto attend = [&](auto heads) HWY_ATTR {
          attend_tile<decltype(heads)::value>(a, keys, values, key_begin, queries + g * a.padded, scores,
                                              chunks.result(chunk, a.heads, first_head + g), chunks.floats_per_result);
        };
        switch (std::min(kMostHeads, a.group - g)) {
          case 1: attend(std::integral_constant<std::int64_t, 1>()); break;
          case 2: attend(std::integral_constant<std::int64_t, 2>()); break;
          case 3: attend(std::integral_constant<std::int64_t, 3>()); break;
          default: attend(std::integral_constant<std::int64_t, kMostHeads>());
        }
      }
    }
  });
}

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
  parallel_for(chunks.count * a.kv_heads, [&](std::int64_t unit, int thread) {
    attend_chunk(a, call, chunks, unit / a.kv_heads, unit % a.kv_heads, thread);
  });
  parallel_for(a.heads, [&](std::int64_t head, int) { merge_chunks(a, call, chunks, head); });
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
