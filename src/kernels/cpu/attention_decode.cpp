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

/// scores[j] = query . keys[j], times and within softcap; -infinity where the key is not seen, up to a whole tile.
void score_tile(const AttentionCall& a, const float* query, const float* keys, std::int64_t key_begin,
                std::int64_t key_count, float* scores) {
  const FloatTag d;
  const std::int64_t lanes = float_lanes();
  for (std::int64_t j = 0; j < kTile; ++j) {
    if (j >= key_count || key_begin + j <= a.past - a.window) {
      scores[j] = -std::numeric_limits<float>::infinity();
      continue;
    }
    const float* key = keys + j * a.padded;
    auto sum = hn::Zero(d), other_sum = hn::Zero(d);
    std::int64_t c = 0;
    for (; c + 2 * lanes <= a.padded; c += 2 * lanes) {
      sum = hn::MulAdd(hn::LoadU(d, query + c), hn::LoadU(d, key + c), sum);
      other_sum = hn::MulAdd(hn::LoadU(d, query + c + lanes), hn::LoadU(d, key + c + lanes), other_sum);
    }
    if (c < a.padded) sum = hn::MulAdd(hn::LoadU(d, query + c), hn::LoadU(d, key + c), sum);
    scores[j] = sum_lanes(d, hn::Add(sum, other_sum));
  }
  if (a.softcap > 0.0f) {
    const auto cap = hn::Set(d, a.softcap), inverse_cap = hn::Set(d, 1.0f / a.softcap);
    for (std::int64_t j = 0; j < key_count; j += lanes) {
      const auto s = hn::LoadU(d, scores + j);
      const auto hidden = hn::Lt(s, hn::Set(d, -std::numeric_limits<float>::max()));
      const auto capped = hn::Mul(cap, tanh(d, hn::Mul(s, inverse_cap)));
      hn::StoreU(hn::IfThenElse(hidden, s, capped), d, scores + j);
    }
  }
}

void attend_chunk(const AttentionCall& a, const KernelCall& call, const Chunks& chunks, std::int64_t chunk,
                  std::int64_t kv_head, int thread) {
  const FloatTag d;
  const std::int64_t lanes = float_lanes();
  ScratchPieces pieces(call.scratch, thread);
  float* queries = pieces.take((a.group + 4) * a.padded);  // [group][padded], times scale
  float* keys = pieces.take(kTile * a.padded);
  float* values = pieces.take(kTile * a.padded);
  float* scores = pieces.take(kTile);
  for (std::int64_t g = 0; g < a.group; ++g) {
    const std::int64_t head = kv_head * a.group + g;
    load_rows(call.in[0], 0, 1, head, a.scale, queries + g * a.padded, a.padded);
    float* result = chunks.result(chunk, a.heads, head);
    std::fill(result, result + a.padded, 0.0f);
    result[a.padded] = -1.0e30f;  // maximum: finite, so that differences stay finite before any key is seen
    result[a.padded + 1] = 0.0f;  // sum
  }
  const std::int64_t begin = chunks.first_key + chunk * chunks.keys_per_chunk;
  const std::int64_t end = std::min(begin + chunks.keys_per_chunk, a.past + 1);
  for (std::int64_t key_begin = begin; key_begin < end; key_begin += kTile) {
    const std::int64_t key_count = std::min(kTile, end - key_begin);
    load_rows(call.in[1], key_begin, key_count, kv_head, 1.0f, keys, a.padded);
    load_rows(call.in[2], key_begin, key_count, kv_head, 1.0f, values, a.padded);
    for (std::int64_t g = 0; g < a.group; ++g) {
      float* result = chunks.result(chunk, a.heads, kv_head * a.group + g);
      score_tile(a, queries + g * a.padded, keys, key_begin, key_count, scores);
      float maximum = result[a.padded];
      for (std::int64_t j = 0; j < key_count; ++j) maximum = std::max(maximum, scores[j]);
      auto sums = hn::Zero(d);
      for (std::int64_t j = 0; j < kTile; j += lanes) {
        const auto p = exp(d, hn::Sub(hn::LoadU(d, scores + j), hn::Set(d, maximum)));
        hn::StoreU(p, d, scores + j);
        sums = hn::Add(sums, p);
      }
      const float rescale = std::exp(result[a.padded] - maximum);
      result[a.padded] = maximum;
      result[a.padded + 1] = result[a.padded + 1] * rescale + sum_lanes(d, sums);
      for (std::int64_t c = 0; c < a.padded; c += lanes) {
        hn::StoreU(hn::Mul(hn::LoadU(d, result + c), hn::Set(d, rescale)), d, result + c);
      }
      const TileProduct output{scores, kTile, values, a.padded, key_count, result, a.padded, Into::add};
      product<Left::row_major>(output, 1, 0, a.padded);
    }
  }
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
