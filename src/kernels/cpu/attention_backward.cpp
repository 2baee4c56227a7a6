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
#include "kernels/cpu/attention_products-inl.h"
#include "kernels/cpu/attention_tiles-inl.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/row_sum-inl.h"

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
    HEDDLE_CHECK(v.dtype == k.dtype && d_output.dtype == k.dtype);
  }
};

/// A tile of keys in a thread's scratch: operands and the gradients that collect there.
struct KeyTile {
  Range rows;
  float* keys_transposed;    // [D][kTile]
  float* values_transposed;  // [D][kTile]
  float* keys;               // pairs of rows [kTile][padded], times operand_scale
  float* dk_transposed;      // [D][kTile]
  float* dv_transposed;      // [D][kTile]
};

/// A tile of queries in a thread's scratch.
struct QueryTile {
  float* queries;         // rows [kTile][padded], times operand_scale
  float* query_pairs;     // their pairs of rows
  float* d_output;        // rows [kTile][padded]
  float* d_output_pairs;  // their pairs of rows
  float* dq;              // [kTile][padded]
  float* p;               // [kTile queries][kTile keys]: scores, then p m
  float* ds;              // [kTile queries][kTile keys]: do.v, then ds
  float* ds_rows;         // ds as rows for the product for dq
  std::uint32_t* words;   // dropout words of one query: kTile keys and room before and behind
};

/// A thread's scratch. Operands lie there as the terms of the products want them.
template <class Terms>
struct BackwardTiles {
  std::array<KeyTile, kMaxTilesPerBlock> tiles;
  std::span<KeyTile> block;  // those of the unit
  QueryTile query;

  BackwardTiles(const BackwardTiles&) = delete;  // block points into it
  BackwardTiles(const AttentionCall& a, std::int64_t count, const Scratch& scratch, int thread)
      : block(tiles.data(), static_cast<std::size_t>(count)) {
    ScratchPieces pieces(scratch, thread);
    const std::int64_t operand = words<Terms>(kTile * a.padded);
    for (KeyTile& key : block) {
      key.keys_transposed = pieces.take(operand);
      key.values_transposed = pieces.take(operand);
      key.keys = pieces.take(operand);
      key.dk_transposed = pieces.take(a.padded * kTile);
      key.dv_transposed = pieces.take(a.padded * kTile);
    }
    query.queries = pieces.take(operand);
    query.d_output = pieces.take(operand);
    query.dq = pieces.take(kTile * a.padded);
    query.p = pieces.take(kTile * kTile);
    query.ds = pieces.take(kTile * kTile);
    // Rows of single terms are their own pairs.
    query.query_pairs = Terms::kDepth == 1 ? query.queries : pieces.take(operand);
    query.d_output_pairs = Terms::kDepth == 1 ? query.d_output : pieces.take(operand);
    query.ds_rows = Terms::kDepth == 1 ? query.ds : pieces.take(words<Terms>(kTile * kTile));
    query.words = reinterpret_cast<std::uint32_t*>(pieces.take(3 * kTile));
  }
};

/// Loads the operands of a tile of keys and clears its gradients. The row buffers of the queries are free until the
/// first of them.
template <class Terms>
void load_keys(const AttentionCall& a, const Operands& x, std::int64_t kv_head, const KeyTile& key, float* rows) {
  const std::int64_t begin = key.rows.begin, count = key.rows.count();
  const auto load_transposed = [&](const TensorView& from, float* to) {
    Terms::load_rows(from, begin, count, kv_head, 1.0f, rows, a.padded);
    transpose(rows, words<Terms>(a.padded), count, words<Terms>(a.head_dim), to, kTile);
  };
  load_transposed(x.k, key.keys_transposed);
  load_transposed(x.v, key.values_transposed);
  Terms::load_row_pairs(x.k, begin, count, kv_head, a.operand_scale, key.keys, a.padded);
  std::fill(key.dk_transposed, key.dk_transposed + a.padded * kTile, 0.0f);
  std::fill(key.dv_transposed, key.dv_transposed + a.padded * kTile, 0.0f);
}

/// Writes dk and dv of a tile of keys from the sums in scratch.
void store_key_gradients(const AttentionCall& a, const Operands& x, std::int64_t kv_head, const KeyTile& key,
                         float* rows) {
  transpose(key.dk_transposed, kTile, a.head_dim, key.rows.count(), rows, a.padded);
  store_rows(rows, a.padded, x.dk, key.rows.begin, key.rows.count(), kv_head, a.sum_scale);
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
/// `seen`; both become 0 in the other lanes of `lane_range`.
void differentiate_row(const AttentionCall& a, const Operands& x, std::int64_t t, std::int64_t head, Range keys,
                       Range seen, Range lane_range, std::int64_t row, const QueryTile& tile) {
  const FloatTag d;
  const IntTag integers;
  const WordTag words;
  const std::int64_t lanes = float_lanes();
  float *p_row = tile.p + row * kTile, *ds_row = tile.ds + row * kTile;
  if (seen.count() <= 0) {  // the other of a pair, or none at all: t may be no token
    std::fill(p_row + lane_range.begin, p_row + lane_range.end, 0.0f);
    std::fill(ds_row + lane_range.begin, ds_row + lane_range.end, 0.0f);
    return;
  }
  const auto lse = hn::Set(d, x.lse[head * a.tokens + t]), delta = hn::Set(d, x.delta[head * a.tokens + t]);
  const auto one = hn::Set(d, 1.0f), cap = hn::Set(d, a.softcap);
  const auto inverse_cap = hn::Set(d, a.softcap > 0.0f ? a.sum_scale / a.softcap : 0.0f);
  const auto factor = hn::Set(d, a.softcap > 0.0f ? 1.0f : a.sum_scale);
  const std::int64_t first_lane = seen.begin - keys.begin, end_lane = seen.end - keys.begin;
  const auto first = hn::Set(integers, static_cast<std::int32_t>(first_lane));
  const auto end = hn::Set(integers, static_cast<std::int32_t>(end_lane));
  const std::uint32_t* word = a.dropout.active ? draw_words(a, t, head, keys, tile) : nullptr;
  const auto clear = [&](std::int64_t at) HWY_ATTR {
    hn::StoreU(hn::Zero(d), d, p_row + at);
    hn::StoreU(hn::Zero(d), d, ds_row + at);
  };
  std::int64_t lane = lane_range.begin;
  for (; lane + lanes <= first_lane; lane += lanes) clear(lane);
  for (; lane < end_lane; lane += lanes) {
    auto s = hn::LoadU(d, p_row + lane);
    auto slope = one;
    if (a.softcap > 0.0f) {
      const auto tangent = tanh(d, hn::Mul(s, inverse_cap));
      s = hn::Mul(cap, tangent);
      slope = hn::NegMulAdd(tangent, tangent, one);
    }
    const auto p = exp_or_zero(d, hn::MulSub(s, factor, lse));
    auto dp = hn::LoadU(d, ds_row + lane);
    auto dropped = p;
    if (word != nullptr) {
      const auto kept = dropout_factor(d, a.dropout, hn::LoadU(words, word + lane));
      dropped = hn::Mul(p, kept);
      dp = hn::Mul(dp, kept);
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
  for (; lane < lane_range.end; lane += lanes) clear(lane);
}

/// Queries that share a range of keys in the product for dq: two register blocks.
constexpr std::int64_t kQueriesPerGroup = 12;

/// The gradients that come from one tile of keys and the loaded queries: rows of scratch are the queries from `loaded`
/// on of the tile of queries that begins at `first_query`; loaded is even, since rows are multiplied in pairs.
template <class Terms>
void visit_pair(const AttentionCall& a, const Operands& x, const KeyTile& key, const VisibleKeys& visible, Range loaded,
                std::int64_t first_query, std::int64_t head, const QueryTile& tile) {
  const std::int64_t lanes = float_lanes();
  const Range keys = key.rows, seeing = visible.that_see(keys, loaded.end);
  if (seeing.count() == 0) return;
  const Range seen = visible.seen_by(seeing, keys);
  const std::int64_t step = std::max<std::int64_t>(lanes, 2);
  const Range lane_range{(seen.begin - keys.begin) / step * step, (seen.end - keys.begin + step - 1) / step * step};
  const bool whole = visible.see_all(seeing, keys);
  const auto row_pairs = [&](Range queries) {
    const Range pairs = whole_pairs(queries);
    return Range{pairs.begin - loaded.begin, pairs.end - loaded.begin};
  };

  // Calls f(lanes, rows): once where all is visible, else for each vector of keys with the rows that see any of them.
  const auto for_each_block_of_lanes = [&](const auto& f) {
    if (whole) return f(lane_range, row_pairs(seeing));
    for (std::int64_t lane = lane_range.begin; lane < lane_range.end; lane += lanes) {
      const Range block{keys.begin + lane, std::min(keys.begin + lane + lanes, keys.end)};
      const Range rows = visible.that_see(block, seeing.end);
      if (rows.count() > 0) f(Range{lane, lane + lanes}, row_pairs(rows));
    }
  };
  const std::int64_t row_words = words<Terms>(a.padded), depth = words<Terms>(a.head_dim);
  for_each_block_of_lanes([&](Range block, Range rows) {
    const std::int64_t from = rows.begin * row_words, to = rows.begin * kTile;
    const TileProduct s{tile.queries + from, row_words, key.keys_transposed, kTile, depth, tile.p + to, kTile};
    product<Terms, Left::row_major>(s, rows.count(), block.begin, block.end);
    const TileProduct dp{tile.d_output + from, row_words, key.values_transposed, kTile, depth, tile.ds + to, kTile};
    product<Terms, Left::row_major>(dp, rows.count(), block.begin, block.end);
  });
  const Range pairs = whole_pairs(seeing);
  for (std::int64_t i = pairs.begin; i < pairs.end; ++i) {
    differentiate_row(a, x, first_query + i, head, keys, visible.seen_by({i, i + 1}, keys), lane_range,
                      i - loaded.begin, tile);
  }
  const Range all_rows{seeing.begin - loaded.begin, seeing.end - loaded.begin};
  Terms::round_rows(tile.ds, all_rows.begin, all_rows.end, lane_range.begin, lane_range.end, tile.ds_rows);
  for_each_block_of_lanes([&](Range block, Range rows) {
    const std::int64_t from = words<Terms>(rows.begin) * a.padded, by = rows.begin * kTile;
    const std::int64_t steps = words<Terms>(rows.count());
    Terms::round(tile.p + by, rows.count(), block.begin, block.end);
    const TileProduct dv{tile.d_output_pairs + from, a.padded, tile.p + by, kTile, steps,
                         key.dv_transposed,          kTile,    Into::add};
    product<Terms, Left::column_major>(dv, a.head_dim, block.begin, block.end);
    Terms::round(tile.ds + by, rows.count(), block.begin, block.end);
    const TileProduct dk{tile.query_pairs + from, a.padded, tile.ds + by, kTile, steps,
                         key.dk_transposed,       kTile,    Into::add};
    product<Terms, Left::column_major>(dk, a.head_dim, block.begin, block.end);
  });
  const std::int64_t group_rows = whole ? all_rows.count() : kQueriesPerGroup;
  for (std::int64_t row = all_rows.begin; row < all_rows.end; row += group_rows) {
    const std::int64_t count = std::min(group_rows, all_rows.end - row);
    const Range group = visible.seen_by({loaded.begin + row, loaded.begin + row + count}, keys);
    const Range columns = whole_pairs({group.begin - keys.begin, group.end - keys.begin});
    const TileProduct dq{tile.ds_rows + words<Terms>(row * kTile + columns.begin),
                         words<Terms>(kTile),
                         key.keys + words<Terms>(columns.begin) * a.padded,
                         a.padded,
                         words<Terms>(columns.count()),
                         tile.dq + row * a.padded,
                         a.padded,
                         Into::add};
    product<Terms, Left::row_major>(dq, count, 0, a.padded);
  }
}

/// In what order units add to dq. A unit visits (head of the group, tile of queries) in ascending order, as its
/// predecessor, the block of keys before it of the same head, does; it begins no earlier and ends no earlier. Units are
/// handed out in order, so the predecessor is always under way or done, or each thread takes documents of its own.
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
  /// Waits until the predecessor has left `place`. Where a unit begins with a document, none visits its queries.
  void enter(std::int64_t unit, std::int32_t place) const {
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
template <class Terms>
void visit_queries(const AttentionCall& a, const Operands& x, std::span<const KeyTile> block, Range queries,
                   std::int64_t head, const QueryTile& tile) {
  const VisibleKeys visible(a, queries.begin, queries.count());
  Range loaded = visible.that_see({block.front().rows.begin, block.back().rows.end}, queries.count());
  if (loaded.count() == 0) return;
  loaded.begin = whole_pairs(loaded).begin;
  const std::int64_t begin = queries.begin + loaded.begin;
  const auto load_both_ways = [&](const TensorView& from, float factor, float* rows, float* pairs) {
    Terms::load_rows(from, begin, loaded.count(), head, factor, rows, a.padded);
    if (pairs != rows) Terms::load_row_pairs(from, begin, loaded.count(), head, factor, pairs, a.padded);
  };
  load_both_ways(x.q, a.operand_scale, tile.queries, tile.query_pairs);
  load_both_ways(x.d_output, 1.0f, tile.d_output, tile.d_output_pairs);
  load_rows(x.dq_sum, begin, loaded.count(), head, 1.0f, tile.dq, a.padded);
  for (const KeyTile& key : block) visit_pair<Terms>(a, x, key, visible, loaded, queries.begin, head, tile);
  store_rows(tile.dq, a.padded, x.dq_sum, begin, loaded.count(), head);
}

/// One unit: all gradients that come from the keys of the tiles from `first_tile` on that scratch has, of a key-value
/// head.
template <class Terms>
void visit_keys(const AttentionCall& a, const Operands& x, const KeyOrder& order, std::int64_t unit,
                std::int64_t first_tile, const BackwardTiles<Terms>& scratch) {
  const std::int64_t kv_head = unit % a.kv_heads;
  const std::span block = scratch.block;
  for (std::size_t i = 0; i < block.size(); ++i) {
    KeyTile& key = block[i];
    key.rows = rows_of_tile(first_tile + static_cast<std::int64_t>(i), {0, a.tokens});
    load_keys<Terms>(a, x, kv_head, key, scratch.query.queries);
  }
  const std::int64_t first_key = block.front().rows.begin, last_key = block.back().rows.end - 1;
  const bool has_predecessor = unit >= a.kv_heads && !a.begins_document(first_key);
  const std::int64_t document_end = a.document_starts[a.document_of(last_key) + 1];
  const std::int64_t last_query = std::min(document_end - 1, last_key + a.window - 1);
  for (std::int64_t g = 0; g < a.group; ++g) {
    for (std::int64_t query_tile = first_tile; query_tile <= tile_of(last_query); ++query_tile) {
      const std::int32_t place = order.place(g, query_tile);
      if (has_predecessor) order.enter(unit, place);
      visit_queries<Terms>(a, x, block, rows_of_tile(query_tile, {0, a.tokens}), kv_head * a.group + g, scratch.query);
      order.leave(unit, place);
    }
  }
  order.leave(unit, KeyOrder::kAll);
  for (const KeyTile& key : block) store_key_gradients(a, x, kv_head, key, scratch.query.dq);
}

template <typename T>
float dot_row(const T* left, const T* right, std::int64_t n) {
  const FloatTag d;
  RowSum<float> sum;
  for_each_summed_vector(n, [&](std::int64_t c, int v, auto part) HWY_ATTR {
    sum[v] = hn::MulAdd(load(d, left + c, part), load(d, right + c, part), sum[v]);
  });
  return sum.total();
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

/// Scales the finished sums of dq and rounds them to a shorter A.
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
      const auto factor = hn::Set(d, a.sum_scale);
      std::int64_t i = 0;
      for (; i + float_lanes() <= count; i += float_lanes()) store(hn::Mul(factor, hn::LoadU(d, from + i)), d, to + i);
      const auto rest = static_cast<std::size_t>(count - i);
      if (rest > 0) store_first(hn::Mul(factor, load_first(d, from + i, rest)), d, to + i, rest);
    });
  });
}

void attention_backward(const KernelCall& call) {
  const AttentionCall a(call, call.in[1], call.in[2], call.in[6]);
  const Operands x(call);
  sum_rows(a, x);
  const std::int64_t tiles = tile_count(a.tokens);
  with_terms(a.in_bf16, [&](auto terms) {
    using Terms = decltype(terms);
    const int block = tiles_per_block(a, tiles * a.kv_heads, Terms::kDepth);
    const std::int64_t units = (tiles + block - 1) / block * a.kv_heads;
    const KeyOrder order(a, call.scratch, units);
    const auto visit = [&](std::int64_t unit, int thread) {
      const std::int64_t first_tile = unit / a.kv_heads * block;
      const BackwardTiles<Terms> scratch(a, std::min<std::int64_t>(block, tiles - first_tile), call.scratch, thread);
      visit_keys<Terms>(a, x, order, unit, first_tile, scratch);
    };
    if (shares_begin_documents(a, units / a.kv_heads, block)) {
      parallel_for(units, visit);
    } else {
      parallel_for_in_order(units, visit);
    }
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
