// o[t,n] = sum over visible keys j of softmax_j(scale * q[t,n].k[j,n/G]) v[j,n/G], and lse[n,t] = log of the sum of the
// exponentials. FlashAttention: tiles of keys, online softmax, nothing of size T x T. Dao et al. 2022,
// arXiv:2205.14135; Dao 2023, arXiv:2307.08691; the online sum is Milakov, Gimelshein 2018, arXiv:1805.02867.
// Overwrites o and lse. About 4 * D FLOPs for each visible pair of query and key.
//
// A tile is computed transposed: lanes are queries, rows are keys or dimensions. So maxima and sums of the softmax run
// down the rows without crossing lanes, keys and values are read as they lie (each element broadcast), and D needs to
// be a multiple of nothing. One work unit is a block of tiles of queries of one head, which share each load of a tile
// of keys; units are handed out from the end of the stream, where they are longest.
#include "kernels/cpu/attention_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, which decides what they are compiled for.
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

#include "base/threads.h"
#include "kernels/cpu/attention_decode.h"
#include "kernels/cpu/attention_products-inl.h"
#include "kernels/cpu/attention_tiles-inl.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {
namespace {

/// Scores of masked pairs, of which exp makes 0, and the running maximum before any key, which is finite so that they
/// have a difference.
constexpr float kMasked = -std::numeric_limits<float>::infinity();
constexpr float kNoMaximum = -1.0e30f;

/// A tile of queries in a thread's scratch.
struct QueryTile {
  Range rows{};  // of the stream
  VisibleKeys visible{};
  float* queries;  // transposed [D][kTile], times operand_scale
  float* output;   // [padded][kTile], not yet divided by the sums
  float* maximum;  // [kTile]
  float* sum;      // [kTile]
  float* rescale;  // [kTile]: exp(old maximum - new maximum)
};

/// A thread's scratch. Queries, keys and values lie there as the terms of the products want them.
struct ForwardTiles {
  std::array<QueryTile, kMaxTilesPerBlock> tiles;
  std::span<QueryTile> block;  // those of the unit
  float* rows;                 // [kTile][padded]: queries as read, later the output
  float* keys;                 // rows [kTile][padded]
  float* values;               // pairs of rows [kTile][padded]
  float* scores;               // [kTile keys][kTile queries], then the probabilities

  ForwardTiles(const ForwardTiles&) = delete;  // block points into it
  ForwardTiles(const AttentionCall& a, std::int64_t count, const Scratch& scratch, int thread)
      : block(tiles.data(), static_cast<std::size_t>(count)) {
    ScratchPieces pieces(scratch, thread);
    for (QueryTile& tile : block) {
      tile.queries = pieces.take(a.padded * kTile);
      tile.output = pieces.take(a.padded * kTile);
      tile.maximum = pieces.take(kTile);
      tile.sum = pieces.take(kTile);
      tile.rescale = pieces.take(kTile);
    }
    rows = pieces.take(kTile * a.padded);
    keys = pieces.take(kTile * a.padded);
    values = pieces.take(kTile * a.padded);
    scores = pieces.take(kTile * kTile);
  }
};

/// Multiplies the probabilities of one vector of queries (from stream index t on) by their dropout factors.
void drop(const AttentionCall& a, std::int64_t t, std::int64_t head, Range keys, float* scores) {
  const FloatTag d;
  const WordTag words;
  const auto queries = hn::Iota(words, static_cast<std::uint32_t>(t));
  for (std::int64_t quad = keys.begin / 4; quad * 4 < keys.end; ++quad) {
    auto word0 = dropout_counter_low(words, queries, hn::Set(words, static_cast<std::uint32_t>(quad)));
    auto word1 = dropout_counter_high(words, queries, head);
    WordVector word2, word3;
    philox(words, a.dropout.key, a.dropout.counter_high, word0, word1, word2, word3);
    const auto apply = [&](std::int64_t key, WordVector word) HWY_ATTR {
      if (key < keys.begin || key >= keys.end) return;
      float* p = scores + (key - keys.begin) * kTile;
      hn::StoreU(hn::Mul(hn::LoadU(d, p), dropout_factor(d, a.dropout, word)), d, p);
    };
    apply(4 * quad, word0);
    apply(4 * quad + 1, word1);
    apply(4 * quad + 2, word2);
    apply(4 * quad + 3, word3);
  }
}

/// Turns the scores of one vector of queries, from lane `lane` on, and of some keys into probabilities relative to the
/// running maximum.
template <bool kPartlyMasked>
void online_softmax(const AttentionCall& a, const VisibleKeys& visible, Range keys, std::int64_t lane,
                    float* tile_scores, const QueryTile& tile) {
  const FloatTag d;
  const IntTag integers;
  const auto first = hn::LoadU(integers, visible.first.data() + lane);
  const auto last = hn::LoadU(integers, visible.last.data() + lane);
  const auto cap = hn::Set(d, a.softcap);
  const auto inverse_cap = hn::Set(d, a.softcap > 0.0f ? a.sum_scale / a.softcap : 0.0f);
  const auto factor = hn::Set(d, a.softcap > 0.0f ? 1.0f : a.sum_scale);  // of the scores as they lie there
  float* scores = tile_scores + lane;
  const auto final_score = [&](std::int64_t row) HWY_ATTR {
    auto s = hn::LoadU(d, scores + row * kTile);
    if (a.softcap > 0.0f) s = hn::Mul(cap, tanh(d, hn::Mul(s, inverse_cap)));
    if constexpr (kPartlyMasked) {
      const auto key = hn::Set(integers, static_cast<std::int32_t>(keys.begin + row));
      const auto hidden = hn::Or(hn::Lt(key, first), hn::Gt(key, last));
      s = hn::IfThenElse(hn::RebindMask(d, hidden), hn::Set(d, kMasked), s);
    }
    if (kPartlyMasked || a.softcap > 0.0f) hn::StoreU(s, d, scores + row * kTile);
    return s;
  };
  const auto old_maximum = hn::LoadU(d, tile.maximum + lane);
  auto maximum = hn::Set(d, kMasked), other_maximum = maximum;  // two, since each waits for its last step
  std::int64_t row = 0;
  for (; row + 2 <= keys.count(); row += 2) {
    maximum = hn::Max(maximum, final_score(row));
    other_maximum = hn::Max(other_maximum, final_score(row + 1));
  }
  if (row < keys.count()) maximum = hn::Max(maximum, final_score(row));
  maximum = hn::Max(old_maximum, hn::Mul(hn::Max(maximum, other_maximum), factor));

  auto sum = hn::Zero(d);
  for (row = 0; row < keys.count(); ++row) {
    const auto p = exp_or_zero(d, hn::MulSub(hn::LoadU(d, scores + row * kTile), factor, maximum));
    hn::StoreU(p, d, scores + row * kTile);
    sum = hn::Add(sum, p);
  }
  const auto rescale = exp_or_zero(d, hn::Sub(old_maximum, maximum));
  hn::StoreU(rescale, d, tile.rescale + lane);
  hn::StoreU(maximum, d, tile.maximum + lane);
  hn::StoreU(hn::MulAdd(hn::LoadU(d, tile.sum + lane), rescale, sum), d, tile.sum + lane);
}

/// Loads the queries and clears what collects over the keys.
template <class Terms>
void start(const AttentionCall& a, const TensorView& q, std::int64_t head, float* rows, const QueryTile& tile) {
  Terms::load_rows(q, tile.rows.begin, tile.rows.count(), head, a.operand_scale, rows, a.padded);
  std::fill(tile.queries, tile.queries + words<Terms>(a.padded * kTile), 0.0f);
  transpose(rows, words<Terms>(a.padded), tile.rows.count(), words<Terms>(a.head_dim), tile.queries, kTile);
  std::fill(tile.output, tile.output + a.padded * kTile, 0.0f);
  std::fill(tile.maximum, tile.maximum + kTile, kNoMaximum);
  std::fill(tile.sum, tile.sum + kTile, 0.0f);
}

/// Takes the loaded keys and values `keys` into a tile of queries, of which `seeing` see any of them.
template <class Terms>
void visit_pair(const AttentionCall& a, Range seeing, Range keys, std::int64_t head, const ForwardTiles& scratch,
                const QueryTile& tile) {
  const std::int64_t lanes = float_lanes();
  const VisibleKeys& visible = tile.visible;
  // The softmax and both products for the lanes [from, to) and the keys `rows` of this tile, from an even one on.
  const auto visit = [&](std::int64_t from, std::int64_t to, Range rows, bool partly_masked) {
    const std::int64_t first = rows.begin - keys.begin;
    float* const scores = scratch.scores + first * kTile;
    // scores[j][t] = sum over d of keys[j][d] * queries[d][t]
    const std::int64_t row_words = words<Terms>(a.padded);
    const TileProduct score{scratch.keys + first * row_words, row_words, tile.queries, kTile,
                            words<Terms>(a.head_dim),         scores,    kTile};
    product<Terms, Left::row_major>(score, rows.count(), from, to);
    for (std::int64_t lane = from; lane < to; lane += lanes) {
      if (partly_masked) {
        online_softmax<true>(a, visible, rows, lane, scores, tile);
      } else {
        online_softmax<false>(a, visible, rows, lane, scores, tile);
      }
      if (a.dropout.active) drop(a, tile.rows.begin + lane, head, rows, scores + lane);
    }
    // output[d][t] = output[d][t] * rescale[t] + sum over j of values[j][d] * scores[j][t]
    Terms::round(scores, rows.count(), from, to);
    const TileProduct output{scratch.values + words<Terms>(first) * a.padded,
                             a.padded,
                             scores,
                             kTile,
                             words<Terms>(rows.count()),
                             tile.output,
                             kTile,
                             Into::add_to_scaled,
                             tile.rescale};
    product<Terms, Left::column_major>(output, a.head_dim, from, to);
  };
  if (seeing.begin % lanes == 0 && (seeing.end % lanes == 0 || seeing.end == tile.rows.count()) &&
      visible.see_all(seeing, keys)) {
    visit(seeing.begin, (seeing.end + lanes - 1) / lanes * lanes, keys, false);  // lanes behind the last query are 0
    return;
  }
  // At the diagonal, the ends of documents and the edge of the window each vector has its own range of keys.
  for (std::int64_t lane = seeing.begin / lanes * lanes; lane < seeing.end; lane += lanes) {
    const Range block{std::max(lane, seeing.begin), std::min(lane + lanes, seeing.end)};
    const Range pairs = whole_pairs(visible.seen_by(block, keys));
    visit(lane, lane + lanes, {pairs.begin, std::min(pairs.end, keys.end)}, true);
  }
}

/// Divides by the sums and writes o and lse of a tile of queries.
void finish(const AttentionCall& a, const KernelCall& call, std::int64_t head, float* rows, const QueryTile& tile) {
  const FloatTag d;
  const std::int64_t begin = tile.rows.begin, count = tile.rows.count();
  float* lse = call.out[1].as<float>() + head * a.tokens + begin;
  for (std::int64_t i = 0; i < count; ++i) lse[i] = tile.maximum[i] + std::log(tile.sum[i]);
  for (std::int64_t lane = 0; lane < count; lane += float_lanes()) {
    const auto inverse = hn::Div(hn::Set(d, 1.0f), hn::LoadU(d, tile.sum + lane));
    for (std::int64_t c = 0; c < a.head_dim; ++c) {
      float* to = tile.output + c * kTile + lane;
      hn::StoreU(hn::Mul(hn::LoadU(d, to), inverse), d, to);
    }
  }
  transpose(tile.output, kTile, a.head_dim, count, rows, a.padded);
  store_rows(rows, a.padded, call.out[0], begin, count, head);
}

/// One unit: o and lse of the tiles of queries [tiles.begin, tiles.end) of one head.
template <class Terms>
void attend(const AttentionCall& a, const KernelCall& call, Range tiles, std::int64_t head, int thread) {
  const TensorView &q = call.in[0], &k = call.in[1], &v = call.in[2];
  const std::int64_t kv_head = head / a.group;
  ForwardTiles scratch(a, tiles.count(), call.scratch, thread);
  const std::span block = scratch.block;
  for (std::int64_t i = 0; i < tiles.count(); ++i) {
    QueryTile& tile = block[static_cast<std::size_t>(i)];
    tile.rows = rows_of_tile(tiles.begin + i, {0, a.tokens});
    tile.visible = VisibleKeys(a, tile.rows.begin, tile.rows.count());
    start<Terms>(a, q, head, scratch.rows, tile);
  }
  const std::int64_t first_key = block.front().visible.first_of(0), last_key = a.past + block.back().rows.end - 1;
  for (std::int64_t key_tile = tile_of(first_key); key_tile <= tile_of(last_key); ++key_tile) {
    const Range keys = rows_of_tile(key_tile, {0, a.keys()});
    bool is_loaded = false;
    for (const QueryTile& tile : block) {
      const Range seeing = tile.visible.that_see(keys, tile.rows.count());
      if (seeing.count() == 0) continue;
      if (!is_loaded) {
        Terms::load_rows(k, keys.begin, keys.count(), kv_head, 1.0f, scratch.keys, a.padded);
        Terms::load_row_pairs(v, keys.begin, keys.count(), kv_head, 1.0f, scratch.values, a.padded);
        is_loaded = true;
      }
      visit_pair<Terms>(a, seeing, keys, head, scratch, tile);
    }
  }
  for (const QueryTile& tile : block) finish(a, call, head, scratch.rows, tile);
}

void attention(const KernelCall& call) {
  const AttentionCall a(call, call.in[0], call.in[1], call.in[3]);
  HEDDLE_CHECK(call.in[2].dtype == call.in[1].dtype);
  const std::int64_t tiles = tile_count(a.tokens);
  with_terms(a.in_bf16, [&](auto terms) {
    using Terms = decltype(terms);
    const int block = tiles_per_block(a, tiles * a.heads, Terms::kDepth);
    const std::int64_t blocks = (tiles + block - 1) / block;
    const auto attend_block = [&](std::int64_t index, std::int64_t head, int thread) {
      const std::int64_t begin = index * block;
      attend<Terms>(a, call, {begin, std::min(begin + block, tiles)}, head, thread);
    };
    if (shares_begin_documents(a, blocks, block)) {
      parallel_for(blocks * a.heads,
                   [&](std::int64_t unit, int thread) { attend_block(unit / a.heads, unit % a.heads, thread); });
    } else {
      parallel_for_in_order(blocks * a.heads, [&](std::int64_t unit, int thread) {
        attend_block(blocks - 1 - unit / a.heads, unit % a.heads, thread);  // those that see most keys first
      });
    }
  });
}

}  // namespace
}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu {

HWY_EXPORT(attention);

void attention(const KernelCall& call) {
  if (call.attributes.integer("cached") != 0 && call.in[0].shape[0] == 1) return attention_decode(call);
  HWY_DYNAMIC_DISPATCH(attention)(call);
}

}  // namespace heddle::cpu
#endif
