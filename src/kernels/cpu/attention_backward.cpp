// Gradients of attention by recomputation: with p = exp(s - lse) for the (capped) scores s, m the dropout factors and
// delta[t] = do[t] . o[t],
//   dv[j] = sum_t (p m)[t,j] do[t]        ds = p (m (do[t] . v[j]) - delta[t]) * d softcap
//   dk[j] = scale sum_t ds[t,j] q[t]      dq[t] = scale sum_j ds[t,j] k[j]
// (Dao et al. 2022, arXiv:2205.14135, algorithm 4). Overwrites dq, dk, dv; workspace [N,T] holds delta, dq_sum [T,N,D]
// collects dq in f32 where A is shorter. About 10 * D FLOPs for each visible pair.
//
// Lanes are keys, rows are queries: keys and values are transposed once for a tile of keys, queries and do are read as
// they lie. A unit of work is a block of tiles of keys and a key-value head, with all queries that see it; it makes all
// five products of a pair of tiles at once. The sum of a query's dq goes through units in the order of keys, whatever
// the threads: a unit adds to a tile of dq once the unit before it has (KeyOrder). Since every unit begins later in the
// stream than the one before, a thread rarely waits.
#include "kernels/cpu/attention_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_backward.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, which decides what they are compiled for.
#include <hwy/highway.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <limits>
#include <span>
#include <thread>

#include "base/threads.h"
#include "kernels/cpu/attention_tiles-inl.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {
namespace {

struct Operands {
  const TensorView &d_output, &q, &k, &v, &o;
  const float* lse;  // [N, T]
  const TensorView &dq, &dk, &dv;
  float* delta;       // [N, T]
  TensorView dq_sum;  // dq itself where it is f32

  explicit Operands(const KernelCall& call)
      : d_output(call.in[0]),
        q(call.in[1]),
        k(call.in[2]),
        v(call.in[3]),
        o(call.in[4]),
        lse(call.in[5].as<const float>()),
        dq(call.out[0]),
        dk(call.out[1]),
        dv(call.out[2]),
        delta(call.out[3].as<float>()),
        dq_sum{dq.dtype == DType::f32 ? dq.data : call.out[4].data, DType::f32, dq.shape} {
    HEDDLE_CHECK(dq_sum.present());
  }
};

/// Tiles of keys that one unit visits for one load of the queries, where there are units enough.
constexpr int kMaxTilesPerBlock = 2;

/// A tile of keys in a thread's scratch: operands and the gradients that collect there.
struct KeyTile {
  Range rows;
  float* keys_transposed;    // [D][kTile]
  float* values_transposed;  // [D][kTile]
  float* keys;               // [kTile][padded], times scale
  float* dk_transposed;      // [D][kTile]
  float* dv_transposed;      // [D][kTile]
};

/// A tile of queries in a thread's scratch.
struct QueryTile {
  float* queries;        // [kTile][padded], times scale
  float* d_output;       // [kTile][padded]
  float* dq;             // [kTile][padded]
  float* p;              // [kTile queries][kTile keys]: scores, then p m
  float* ds;             // [kTile queries][kTile keys]: do.v, then ds
  std::uint32_t* words;  // dropout words of one query: kTile keys and room before and behind
};

/// A thread's scratch.
struct BackwardTiles {
  std::array<KeyTile, kMaxTilesPerBlock> block;
  QueryTile query;

  BackwardTiles(const AttentionCall& a, const Scratch& scratch, int thread) {
    ScratchPieces pieces(scratch, thread);
    for (KeyTile& key : block) {
      key.keys_transposed = pieces.take(a.padded * kTile);
      key.values_transposed = pieces.take(a.padded * kTile);
      key.keys = pieces.take(kTile * a.padded);
      key.dk_transposed = pieces.take(a.padded * kTile);
      key.dv_transposed = pieces.take(a.padded * kTile);
    }
    query.queries = pieces.take(kTile * a.padded);
    query.d_output = pieces.take(kTile * a.padded);
    query.dq = pieces.take(kTile * a.padded);
    query.p = pieces.take(kTile * kTile);
    query.ds = pieces.take(kTile * kTile);
    query.words = reinterpret_cast<std::uint32_t*>(pieces.take(3 * kTile));
  }
};

/// Loads the operands of a tile of keys and clears its gradients. The row buffers of the queries are free until the
/// first of them.
void load_keys(const AttentionCall& a, const Operands& x, std::int64_t kv_head, const KeyTile& key, float* rows) {
  const std::int64_t begin = key.rows.begin, count = key.rows.count();
  load_rows(x.k, begin, count, kv_head, 1.0f, rows, a.padded);
  transpose(rows, a.padded, count, a.head_dim, key.keys_transposed, kTile);
  load_rows(x.v, begin, count, kv_head, 1.0f, rows, a.padded);
  transpose(rows, a.padded, count, a.head_dim, key.values_transposed, kTile);
  load_rows(x.k, begin, count, kv_head, a.scale, key.keys, a.padded);
  std::fill(key.dk_transposed, key.dk_transposed + a.padded * kTile, 0.0f);
  std::fill(key.dv_transposed, key.dv_transposed + a.padded * kTile, 0.0f);
}

/// Writes dk and dv of a tile of keys from the sums in scratch.
void store_key_gradients(const AttentionCall& a, const Operands& x, std::int64_t kv_head, const KeyTile& key,
                         float* rows) {
  transpose(key.dk_transposed, kTile, a.head_dim, key.rows.count(), rows, a.padded);
  store_rows(rows, a.padded, x.dk, key.rows.begin, key.rows.count(), kv_head);
  transpose(key.dv_transposed, kTile, a.head_dim, key.rows.count(), rows, a.padded);
  store_rows(rows, a.padded, x.dv, key.rows.begin, key.rows.count(), kv_head);
}

/// Words that decide on the keys [keys.begin, ...) for query t, in tile.words; returns where the first key's lies.
const std::uint32_t* draw_words(const AttentionCall& a, std::int64_t t, std::int64_t head, Range keys,
                                const QueryTile& tile) {
  const WordTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t first_quad = keys.begin / 4;
  std::uint32_t* to = tile.words;
  for (std::int64_t quad = first_quad; quad * 4 < keys.end; quad += lanes, to += 4 * lanes) {
    const auto queries = hn::Set(d, static_cast<std::uint32_t>(t));
    auto word0 = dropout_counter_low(d, queries, hn::Iota(d, static_cast<std::uint32_t>(quad)));
    auto word1 = dropout_counter_high(d, queries, head);
    WordVector word2, word3;
    philox(d, a.dropout.key, a.dropout.counter_high, word0, word1, word2, word3);
    hn::StoreInterleaved4(word0, word1, word2, word3, d, to);
  }
  return tile.words + (keys.begin - 4 * first_quad);
}

/// From the scores in p and do.v in ds to p m and ds, for query t in row `row` and the lanes that hold its visible keys
/// `seen`; ds becomes 0 in the other lanes of `lane_range`.
void differentiate_row(const AttentionCall& a, const Operands& x, std::int64_t t, std::int64_t head, Range keys,
                       Range seen, Range lane_range, std::int64_t row, const QueryTile& tile) {
  const FloatTag d;
  const IntTag integers;
  const WordTag words;
  const std::int64_t lanes = float_lanes();
  const auto lse = hn::Set(d, x.lse[head * a.tokens + t]), delta = hn::Set(d, x.delta[head * a.tokens + t]);
  const auto one = hn::Set(d, 1.0f), cap = hn::Set(d, a.softcap);
  const auto inverse_cap = hn::Set(d, a.softcap > 0.0f ? 1.0f / a.softcap : 0.0f);
  const std::int64_t first_lane = seen.begin - keys.begin, end_lane = seen.end - keys.begin;
  const auto first = hn::Set(integers, static_cast<std::int32_t>(first_lane));
  const auto end = hn::Set(integers, static_cast<std::int32_t>(end_lane));
  const std::uint32_t* word = a.dropout.active ? draw_words(a, t, head, keys, tile) : nullptr;
  float *p_row = tile.p + row * kTile, *ds_row = tile.ds + row * kTile;
  std::int64_t lane = lane_range.begin;
  for (; lane + lanes <= first_lane; lane += lanes) hn::StoreU(hn::Zero(d), d, ds_row + lane);
  for (; lane < end_lane; lane += lanes) {
    auto s = hn::LoadU(d, p_row + lane);
    auto slope = one;
    if (a.softcap > 0.0f) {
      const auto tangent = tanh(d, hn::Mul(s, inverse_cap));
      s = hn::Mul(cap, tangent);
      slope = hn::NegMulAdd(tangent, tangent, one);
    }
    const auto p = exp_or_zero(d, hn::Sub(s, lse));
    auto dp = hn::LoadU(d, ds_row + lane);
    auto dropped = p;
    if (word != nullptr) {
      const auto factor = dropout_factor(d, a.dropout, hn::LoadU(words, word + lane));
      dropped = hn::Mul(p, factor);
      dp = hn::Mul(dp, factor);
    }
    auto ds = hn::Mul(p, hn::Sub(dp, delta));
    if (a.softcap > 0.0f) ds = hn::Mul(ds, slope);
    if (lane < first_lane || lane + lanes > end_lane) {
      const auto key = hn::Iota(integers, static_cast<std::int32_t>(lane));
      const auto hidden = hn::RebindMask(d, hn::Not(hn::And(hn::Gt(end, key), hn::Not(hn::Lt(key, first)))));
      dropped = hn::IfThenZeroElse(hidden, dropped);
      ds = hn::IfThenZeroElse(hidden, ds);
    }
    hn::StoreU(dropped, d, p_row + lane);
    hn::StoreU(ds, d, ds_row + lane);
  }
  for (; lane < lane_range.end; lane += lanes) hn::StoreU(hn::Zero(d), d, ds_row + lane);
}

/// Queries that share a range of keys in the product for dq: two register blocks.
constexpr std::int64_t kQueriesPerGroup = 12;

/// The gradients that come from one tile of keys and the loaded queries: rows of scratch are the queries `loaded` of
/// the tile of queries that begins at `first_query`.
void visit_pair(const AttentionCall& a, const Operands& x, const KeyTile& key, const VisibleKeys& visible, Range loaded,
                std::int64_t first_query, std::int64_t head, const QueryTile& tile) {
  const std::int64_t lanes = float_lanes();
  const Range keys = key.rows, seeing = visible.that_see(keys, loaded.end);
  if (seeing.count() == 0) return;
  const Range seen = visible.seen_by(seeing, keys);
  const Range lane_range{(seen.begin - keys.begin) / lanes * lanes,
                         (seen.end - keys.begin + lanes - 1) / lanes * lanes};
  const bool whole = visible.see_all(seeing, keys);
  const Range all_rows{seeing.begin - loaded.begin, seeing.end - loaded.begin};

  // Calls f(lanes, rows): once where all is visible, else for each vector of keys with the rows that see any of them.
  const auto for_each_block_of_lanes = [&](const auto& f) {
    if (whole) return f(lane_range, all_rows);
    for (std::int64_t lane = lane_range.begin; lane < lane_range.end; lane += lanes) {
      const Range block{keys.begin + lane, std::min(keys.begin + lane + lanes, keys.end)};
      const Range rows = visible.that_see(block, seeing.end);
      if (rows.count() > 0) f(Range{lane, lane + lanes}, Range{rows.begin - loaded.begin, rows.end - loaded.begin});
    }
  };
  for_each_block_of_lanes([&](Range block, Range rows) {
    const std::int64_t from = rows.begin * a.padded, to = rows.begin * kTile;
    const TileProduct s{tile.queries + from, a.padded, key.keys_transposed, kTile, a.head_dim, tile.p + to, kTile};
    product<Left::row_major>(s, rows.count(), block.begin, block.end);
    const TileProduct dp{tile.d_output + from, a.padded, key.values_transposed, kTile, a.head_dim, tile.ds + to, kTile};
    product<Left::row_major>(dp, rows.count(), block.begin, block.end);
  });
  for (std::int64_t i = seeing.begin; i < seeing.end; ++i) {
    differentiate_row(a, x, first_query + i, head, keys, visible.seen_by({i, i + 1}, keys), lane_range,
                      i - loaded.begin, tile);
  }
  for_each_block_of_lanes([&](Range block, Range rows) {
    const std::int64_t from = rows.begin * a.padded, by = rows.begin * kTile;
    const TileProduct dv{tile.d_output + from, a.padded,          tile.p + by, kTile,
                         rows.count(),         key.dv_transposed, kTile,       Into::add};
    product<Left::column_major>(dv, a.head_dim, block.begin, block.end);
    const TileProduct dk{tile.queries + from, a.padded,          tile.ds + by, kTile,
                         rows.count(),        key.dk_transposed, kTile,        Into::add};
    product<Left::column_major>(dk, a.head_dim, block.begin, block.end);
  });
  const std::int64_t step = whole ? all_rows.count() : kQueriesPerGroup;
  for (std::int64_t row = all_rows.begin; row < all_rows.end; row += step) {
    const std::int64_t count = std::min(step, all_rows.end - row);
    const Range group = visible.seen_by({loaded.begin + row, loaded.begin + row + count}, keys);
    const std::int64_t first = group.begin - keys.begin;
    const TileProduct dq{tile.ds + row * kTile + first,
                         kTile,
                         key.keys + first * a.padded,
                         a.padded,
                         group.count(),
                         tile.dq + row * a.padded,
                         a.padded,
                         Into::add};
    product<Left::row_major>(dq, count, 0, a.padded);
  }
}

/// In what order units add to dq. A unit visits (head of the group, tile of queries) in ascending order, as its
/// predecessor, the block of keys before it of the same head, does; it begins no earlier and ends no earlier. Units are
/// handed out in order, so the predecessor is always under way or done.
class KeyOrder {
 public:
  static constexpr std::int32_t kNothing = -1, kAll = std::numeric_limits<std::int32_t>::max();

  KeyOrder(const AttentionCall& a, const Scratch& scratch, std::int64_t units)
      : visited_(reinterpret_cast<std::int32_t*>(scratch.shared)), kv_heads_(a.kv_heads), tiles_(tile_count(a.tokens)) {
    HEDDLE_CHECK(units * static_cast<std::int64_t>(sizeof(std::int32_t)) <=
                 static_cast<std::int64_t>(scratch.shared_bytes));
    HEDDLE_CHECK(a.group * tiles_ < kAll);
    std::fill(visited_, visited_ + units, kNothing);
  }

  std::int32_t place(std::int64_t head_in_group, std::int64_t query_tile) const {
    return static_cast<std::int32_t>(head_in_group * tiles_ + query_tile);
  }
  /// Waits until the predecessor has left `place`.
  void enter(std::int64_t unit, std::int32_t place) const {
    if (unit < kv_heads_) return;
    const std::atomic_ref<std::int32_t> visited(visited_[unit - kv_heads_]);
    for (int tries = 0; visited.load(std::memory_order_acquire) < place; ++tries) {
      if (tries < kPausesBeforeYield) {
        hwy::Pause();
      } else {
        std::this_thread::yield();
      }
    }
  }
  void leave(std::int64_t unit, std::int32_t place) const {
    std::atomic_ref<std::int32_t>(visited_[unit]).store(place, std::memory_order_release);
  }

 private:
  static constexpr int kPausesBeforeYield = 1000;
  std::int32_t* visited_;  // of each unit: the place that it left last
  std::int64_t kv_heads_, tiles_;
};

/// What one tile of queries adds to the gradients of a block of keys, and to dq.
void visit_queries(const AttentionCall& a, const Operands& x, std::span<const KeyTile> block, Range queries,
                   std::int64_t head, const QueryTile& tile) {
  const VisibleKeys visible(a, queries.begin, queries.count());
  const Range loaded = visible.that_see({block.front().rows.begin, block.back().rows.end}, queries.count());
  if (loaded.count() == 0) return;
  const std::int64_t begin = queries.begin + loaded.begin;
  load_rows(x.q, begin, loaded.count(), head, a.scale, tile.queries, a.padded);
  load_rows(x.d_output, begin, loaded.count(), head, 1.0f, tile.d_output, a.padded);
  load_rows(x.dq_sum, begin, loaded.count(), head, 1.0f, tile.dq, a.padded);
  for (const KeyTile& key : block) visit_pair(a, x, key, visible, loaded, queries.begin, head, tile);
  store_rows(tile.dq, a.padded, x.dq_sum, begin, loaded.count(), head);
}

/// One unit: all gradients that come from the keys of `tiles` consecutive tiles of a key-value head.
void visit_keys(const AttentionCall& a, const Operands& x, const KeyOrder& order, std::int64_t unit, int tiles,
                BackwardTiles& scratch) {
  const std::int64_t kv_head = unit % a.kv_heads, first_tile = unit / a.kv_heads * tiles;
  const std::int64_t end_tile = std::min(first_tile + tiles, tile_count(a.tokens));
  const std::span block(scratch.block.data(), static_cast<std::size_t>(end_tile - first_tile));
  for (std::int64_t i = 0; i < end_tile - first_tile; ++i) {
    KeyTile& key = block[static_cast<std::size_t>(i)];
    key.rows = rows_of_tile(first_tile + i, {0, a.tokens});
    load_keys(a, x, kv_head, key, scratch.query.queries);
  }
  const std::int64_t last_key = block.back().rows.end - 1;
  const std::int64_t document_end = a.document_starts[a.document_of(last_key) + 1];
  const std::int64_t last_query = std::min(document_end - 1, last_key + a.window - 1);
  for (std::int64_t g = 0; g < a.group; ++g) {
    for (std::int64_t query_tile = first_tile; query_tile <= tile_of(last_query); ++query_tile) {
      const std::int32_t place = order.place(g, query_tile);
      order.enter(unit, place);
      visit_queries(a, x, block, rows_of_tile(query_tile, {0, a.tokens}), kv_head * a.group + g, scratch.query);
      order.leave(unit, place);
    }
  }
  order.leave(unit, KeyOrder::kAll);
  for (const KeyTile& key : block) store_key_gradients(a, x, kv_head, key, scratch.query.queries);
}

template <typename T>
float dot_row(const T* left, const T* right, std::int64_t n) {
  const FloatTag d;
  const std::int64_t lanes = float_lanes();
  auto sum = hn::Zero(d);
  std::int64_t c = 0;
  for (; c + lanes <= n; c += lanes) sum = hn::MulAdd(load(d, left + c), load(d, right + c), sum);
  if (c < n) {
    const auto rest = static_cast<std::size_t>(n - c);
    sum = hn::MulAdd(load_first(d, left + c, rest), load_first(d, right + c, rest), sum);
  }
  return sum_lanes(d, sum);
}

/// delta[n,t] = do[t,n] . o[t,n], and dq_sum = 0.
void sum_rows(const AttentionCall& a, const Operands& x) {
  with_element_type(x.o.dtype, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    parallel_for(tile_count(a.tokens), [&](std::int64_t tile, int) {
      const Range rows = rows_of_tile(tile, {0, a.tokens});
      const std::int64_t width = a.heads * a.head_dim;
      for (std::int64_t i = rows.begin * a.heads; i < rows.end * a.heads; ++i) {
        const std::int64_t offset = i * a.head_dim;
        x.delta[i % a.heads * a.tokens + i / a.heads] =
            dot_row(x.d_output.as<const T>() + offset, x.o.as<const T>() + offset, a.head_dim);
      }
      std::fill(x.dq_sum.as<float>() + rows.begin * width, x.dq_sum.as<float>() + rows.end * width, 0.0f);
    });
  });
}

/// Rounds the finished sums of dq to a shorter A.
void store_dq(const AttentionCall& a, const Operands& x) {
  if (x.dq.dtype == DType::f32) return;
  const std::int64_t width = a.heads * a.head_dim;
  with_element_type(x.dq.dtype, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    parallel_for(tile_count(a.tokens), [&](std::int64_t tile, int) {
      const Range rows = rows_of_tile(tile, {0, a.tokens});
      const std::int64_t offset = rows.begin * width, count = rows.count() * width;
      const auto* from = x.dq_sum.as<const float>() + offset;  // without room behind it, unlike rows of a tile
      T* to = x.dq.as<T>() + offset;
      const FloatTag d;
      std::int64_t i = 0;
      for (; i + float_lanes() <= count; i += float_lanes()) store(hn::LoadU(d, from + i), d, to + i);
      const auto rest = static_cast<std::size_t>(count - i);
      if (rest > 0) store_first(load_first(d, from + i, rest), d, to + i, rest);
    });
  });
}

void attention_backward(const KernelCall& call) {
  const AttentionCall a(call, call.in[1], call.in[2], call.in[6]);
  const Operands x(call);
  sum_rows(a, x);
  const std::int64_t tiles = tile_count(a.tokens);
  const int tiles_per_block = has_units_enough(tiles * a.kv_heads, kMaxTilesPerBlock) ? kMaxTilesPerBlock : 1;
  const std::int64_t units = (tiles + tiles_per_block - 1) / tiles_per_block * a.kv_heads;
  const KeyOrder order(a, call.scratch, units);
  parallel_for(units, [&](std::int64_t unit, int thread) {
    BackwardTiles scratch(a, call.scratch, thread);
    visit_keys(a, x, order, unit, tiles_per_block, scratch);
  });
  store_dq(a, x);
}

}  // namespace
}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu {

HWY_EXPORT(attention_backward);

void attention_backward(const KernelCall& call) { HWY_DYNAMIC_DISPATCH(attention_backward)(call); }

}  // namespace heddle::cpu
#endif
