// Gradients of attention by recomputation: with p = exp(s - lse) for the (capped) scores s, m the dropout factors and
// delta[t] = do[t] . o[t],
//   dv[j] = sum_t (p m)[t,j] do[t]        ds = p (m (do[t] . v[j]) - delta[t]) * d softcap
//   dk[j] = scale sum_t ds[t,j] q[t]      dq[t] = scale sum_j ds[t,j] k[j]
// (Dao et al. 2022, arXiv:2205.14135, algorithm 4). Overwrites dq, dk, dv; workspace [N,T] holds delta, dq_sum [T,N,D]
// collects dq in f32 where A is shorter. About 10 * D FLOPs for each visible pair in one pass, 14 in two.
//
// Lanes are keys, rows are queries: keys and values are transposed once for a tile of keys, queries and do are read as
// they lie. Two ways to divide the work:
//   one pass    a unit is one document and key-value head; all five products of a pair of tiles are made at once
//   two passes  first dk, dv by (tile of keys, key-value head), then dq by (tile of queries, head), which makes the
//               scores and do.v twice (measured: 1.5 times the work), but has as many units as the forward
// Both add the same tile sums in the same order, to the same bits, so the choice may look at the number of threads:
// one pass unless it would leave threads idle for longer than the second pass costs.
#include "kernels/cpu/attention_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_backward.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, which decides what they are compiled for.
#include <hwy/highway.h>

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

/// Which gradients a visit of a pair of tiles makes.
enum class Makes { all, keys_and_values, queries };

/// Tiles in a thread's scratch.
struct BackwardTile {
  float* keys_transposed;    // [D][kTile]
  float* values_transposed;  // [D][kTile]
  float* keys;               // [kTile][padded], times scale
  float* dk_transposed;      // [D][kTile]
  float* dv_transposed;      // [D][kTile]
  float* queries;            // [kTile][padded], times scale
  float* d_output;           // [kTile][padded]
  float* dq;                 // [kTile][padded]
  float* p;                  // [kTile queries][kTile keys]: scores, then p m
  float* ds;                 // [kTile queries][kTile keys]: do.v, then ds
  std::uint32_t* words;      // dropout words of one query: kTile keys and room before and behind

  BackwardTile(const AttentionCall& a, const Scratch& scratch, int thread) {
    ScratchPieces pieces(scratch, thread);
    keys_transposed = pieces.take(a.padded * kTile);
    values_transposed = pieces.take(a.padded * kTile);
    keys = pieces.take(kTile * a.padded);
    dk_transposed = pieces.take(a.padded * kTile);
    dv_transposed = pieces.take(a.padded * kTile);
    queries = pieces.take(kTile * a.padded);
    d_output = pieces.take(kTile * a.padded);
    dq = pieces.take(kTile * a.padded);
    p = pieces.take(kTile * kTile);
    ds = pieces.take(kTile * kTile);
    words = reinterpret_cast<std::uint32_t*>(pieces.take(3 * kTile));
  }
};

void load_keys(const AttentionCall& a, const Operands& x, Range keys, std::int64_t kv_head, const BackwardTile& tile) {
  // The row buffers of the queries are free until the first pair.
  load_rows(x.k, keys.begin, keys.count(), kv_head, 1.0f, tile.queries, a.padded);
  transpose(tile.queries, a.padded, keys.count(), a.head_dim, tile.keys_transposed, kTile);
  load_rows(x.v, keys.begin, keys.count(), kv_head, 1.0f, tile.queries, a.padded);
  transpose(tile.queries, a.padded, keys.count(), a.head_dim, tile.values_transposed, kTile);
  load_rows(x.k, keys.begin, keys.count(), kv_head, a.scale, tile.keys, a.padded);
}

/// Words that decide on the keys [keys.begin, ...) for query t, in tile.words; returns where the first key's lies.
const std::uint32_t* draw_words(const AttentionCall& a, std::int64_t t, std::int64_t head, Range keys,
                                const BackwardTile& tile) {
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
                       Range seen, Range lane_range, std::int64_t row, const BackwardTile& tile) {
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
    const auto p = exp(d, hn::Sub(s, lse));
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

/// The gradients that come from one tile of keys, whose operands are loaded, and one tile of queries.
void visit_pair(const AttentionCall& a, const Operands& x, Range keys, Range queries, std::int64_t head, Makes makes,
                const BackwardTile& tile) {
  const std::int64_t lanes = float_lanes();
  const VisibleKeys visible(a, queries.begin, queries.count());
  const Range seeing = visible.that_see(keys, queries.count());
  if (seeing.count() == 0) return;
  const Range seen = visible.seen_by(seeing, keys);
  const Range lane_range{(seen.begin - keys.begin) / lanes * lanes,
                         (seen.end - keys.begin + lanes - 1) / lanes * lanes};
  const bool whole = visible.see_all(seeing, keys);
  // Rows of this pair lie from row 0 on in scratch; row i is query seeing.begin + i of its tile.
  const std::int64_t begin = queries.begin + seeing.begin;
  load_rows(x.q, begin, seeing.count(), head, a.scale, tile.queries, a.padded);
  load_rows(x.d_output, begin, seeing.count(), head, 1.0f, tile.d_output, a.padded);

  // Calls f(lanes, rows): once where all is visible, else for each vector of keys with the rows that see any of them.
  const auto for_each_block_of_lanes = [&](const auto& f) {
    if (whole) return f(lane_range, Range{0, seeing.count()});
    for (std::int64_t lane = lane_range.begin; lane < lane_range.end; lane += lanes) {
      const Range block{keys.begin + lane, std::min(keys.begin + lane + lanes, keys.end)};
      const Range rows = visible.that_see(block, queries.count());
      if (rows.count() > 0) f(Range{lane, lane + lanes}, Range{rows.begin - seeing.begin, rows.end - seeing.begin});
    }
  };
  for_each_block_of_lanes([&](Range block, Range rows) {
    const std::int64_t from = rows.begin * a.padded, to = rows.begin * kTile;
    const TileProduct s{tile.queries + from, a.padded, tile.keys_transposed, kTile, a.head_dim, tile.p + to, kTile};
    product<Left::row_major>(s, rows.count(), block.begin, block.end);
    const TileProduct dp{tile.d_output + from, a.padded, tile.values_transposed, kTile, a.head_dim,
                         tile.ds + to,         kTile};
    product<Left::row_major>(dp, rows.count(), block.begin, block.end);
  });
  for (std::int64_t row = 0; row < seeing.count(); ++row) {
    const std::int64_t i = seeing.begin + row;
    differentiate_row(a, x, begin + row, head, keys, visible.seen_by({i, i + 1}, keys), lane_range, row, tile);
  }
  if (makes != Makes::queries) {
    for_each_block_of_lanes([&](Range block, Range rows) {
      const std::int64_t from = rows.begin * a.padded, by = rows.begin * kTile;
      const TileProduct dv{tile.d_output + from, a.padded,           tile.p + by, kTile,
                           rows.count(),         tile.dv_transposed, kTile,       Into::add};
      product<Left::column_major>(dv, a.head_dim, block.begin, block.end);
      const TileProduct dk{tile.queries + from, a.padded,           tile.ds + by, kTile,
                           rows.count(),        tile.dk_transposed, kTile,        Into::add};
      product<Left::column_major>(dk, a.head_dim, block.begin, block.end);
    });
  }
  if (makes != Makes::keys_and_values) {
    load_rows(x.dq_sum, begin, seeing.count(), head, 1.0f, tile.dq, a.padded);
    const std::int64_t step = whole ? seeing.count() : kQueriesPerGroup;
    for (std::int64_t row = 0; row < seeing.count(); row += step) {
      const std::int64_t count = std::min(step, seeing.count() - row);
      const Range group = visible.seen_by({seeing.begin + row, seeing.begin + row + count}, keys);
      const std::int64_t first = group.begin - keys.begin;
      const TileProduct dq{tile.ds + row * kTile + first,
                           kTile,
                           tile.keys + first * a.padded,
                           a.padded,
                           group.count(),
                           tile.dq + row * a.padded,
                           a.padded,
                           Into::add};
      product<Left::row_major>(dq, count, 0, a.padded);
    }
    store_rows(tile.dq, a.padded, x.dq_sum, begin, seeing.count(), head);
  }
}

/// Writes dk and dv of a tile of keys from the sums in scratch.
void store_key_gradients(const AttentionCall& a, const Operands& x, Range keys, std::int64_t kv_head,
                         const BackwardTile& tile) {
  transpose(tile.dk_transposed, kTile, a.head_dim, keys.count(), tile.queries, a.padded);
  store_rows(tile.queries, a.padded, x.dk, keys.begin, keys.count(), kv_head);
  transpose(tile.dv_transposed, kTile, a.head_dim, keys.count(), tile.queries, a.padded);
  store_rows(tile.queries, a.padded, x.dv, keys.begin, keys.count(), kv_head);
}

/// dk, dv of a tile of keys, and with Makes::all its part of dq: all query heads of the group, all queries up to the
/// end of `limits` that may see it, in order.
void visit_keys(const AttentionCall& a, const Operands& x, Range keys, Range limits, std::int64_t kv_head, Makes makes,
                const BackwardTile& tile) {
  load_keys(a, x, keys, kv_head, tile);
  std::fill(tile.dk_transposed, tile.dk_transposed + a.padded * kTile, 0.0f);
  std::fill(tile.dv_transposed, tile.dv_transposed + a.padded * kTile, 0.0f);
  const std::int64_t last_query = std::min(limits.end - 1, keys.end - 1 + a.window - 1);
  for (std::int64_t head = kv_head * a.group; head < (kv_head + 1) * a.group; ++head) {
    for (std::int64_t query_tile = tile_of(keys.begin); query_tile <= tile_of(last_query); ++query_tile) {
      visit_pair(a, x, keys, rows_of_tile(query_tile, limits), head, makes, tile);
    }
  }
  store_key_gradients(a, x, keys, kv_head, tile);
}

void clear_dq(const AttentionCall& a, const Operands& x, Range rows, std::int64_t head) {
  for (std::int64_t t = rows.begin; t < rows.end; ++t) {
    float* row = x.dq_sum.as<float>() + (t * a.heads + head) * a.head_dim;
    std::fill(row, row + a.head_dim, 0.0f);
  }
}

/// Rounds the finished sums of dq to a shorter A.
void store_dq(const AttentionCall& a, const Operands& x, Range rows, std::int64_t head, const BackwardTile& tile) {
  if (x.dq.dtype == DType::f32) return;
  for (std::int64_t t = rows.begin; t < rows.end; t += kTile) {
    const std::int64_t count = std::min(kTile, rows.end - t);
    load_rows(x.dq_sum, t, count, head, 1.0f, tile.dq, a.padded);
    store_rows(tile.dq, a.padded, x.dq, t, count, head);
  }
}

/// One pass: all gradients of one document and key-value head.
void visit_document(const AttentionCall& a, const Operands& x, std::int64_t document, std::int64_t kv_head,
                    const BackwardTile& tile) {
  const Range limits{a.document_starts[document], a.document_starts[document + 1]};
  if (limits.count() == 0) return;
  for (std::int64_t g = 0; g < a.group; ++g) clear_dq(a, x, limits, kv_head * a.group + g);
  for (std::int64_t key_tile = tile_of(limits.begin); key_tile <= tile_of(limits.end - 1); ++key_tile) {
    visit_keys(a, x, rows_of_tile(key_tile, limits), limits, kv_head, Makes::all, tile);
  }
  for (std::int64_t g = 0; g < a.group; ++g) store_dq(a, x, limits, kv_head * a.group + g, tile);
}

/// Two passes, the first: dk and dv of a tile of keys.
void visit_key_tile(const AttentionCall& a, const Operands& x, std::int64_t key_tile, std::int64_t kv_head,
                    const BackwardTile& tile) {
  const Range keys = rows_of_tile(key_tile, {0, a.tokens});
  const std::int64_t last_document_end = a.document_starts[a.document_of(keys.end - 1) + 1];
  visit_keys(a, x, keys, {0, last_document_end}, kv_head, Makes::keys_and_values, tile);
}

/// Two passes, the second: dq of a tile of queries.
void visit_query_tile(const AttentionCall& a, const Operands& x, std::int64_t query_tile, std::int64_t head,
                      const BackwardTile& tile) {
  const Range queries = rows_of_tile(query_tile, {0, a.tokens});
  const std::int64_t first_document_begin = a.document_starts[a.document_of(queries.begin)];
  const std::int64_t first_key = std::max(first_document_begin, queries.begin - a.window + 1);
  clear_dq(a, x, queries, head);
  for (std::int64_t key_tile = tile_of(first_key); key_tile <= query_tile; ++key_tile) {
    const Range keys = rows_of_tile(key_tile, {0, a.tokens});
    load_keys(a, x, keys, head / a.group, tile);
    visit_pair(a, x, keys, queries, head, Makes::queries, tile);
  }
  store_dq(a, x, queries, head, tile);
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

/// delta[n,t] = do[t,n] . o[t,n]
void sum_rows(const AttentionCall& a, const Operands& x) {
  with_element_type(x.o.dtype, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    parallel_for(tile_count(a.tokens), [&](std::int64_t tile, int) {
      const Range rows = rows_of_tile(tile, {0, a.tokens});
      for (std::int64_t i = rows.begin * a.heads; i < rows.end * a.heads; ++i) {
        const std::int64_t offset = i * a.head_dim;
        x.delta[i % a.heads * a.tokens + i / a.heads] =
            dot_row(x.d_output.as<const T>() + offset, x.o.as<const T>() + offset, a.head_dim);
      }
    });
  });
}

/// What two passes cost, in one pass's work.
constexpr double kTwoPasses = 1.5;

/// Whether one pass ends sooner, although its largest unit is a whole document. The estimates are those of units handed
/// out one by one.
bool one_pass_is_faster(const AttentionCall& a) {
  if (a.documents == 1) {
    const std::int64_t rounds = (a.kv_heads + threads() - 1) / threads();
    return static_cast<double>(rounds * threads()) <= kTwoPasses * static_cast<double>(a.kv_heads);
  }
  double total = 0.0, largest = 0.0;
  for (std::int64_t i = 0; i < a.documents; ++i) {
    const double length = a.document_starts[i + 1] - a.document_starts[i];
    const double cost = length * std::min<double>(length, 2.0 * static_cast<double>(a.window));
    total += cost;
    largest = std::max(largest, cost);
  }
  const double share = total * static_cast<double>(a.kv_heads) / threads();
  return share + largest * (1.0 - 1.0 / threads()) <= kTwoPasses * share;
}

void attention_backward(const KernelCall& call) {
  const AttentionCall a(call, call.in[1], call.in[2], call.in[6]);
  const Operands x(call);
  sum_rows(a, x);
  if (one_pass_is_faster(a)) {
    parallel_for(a.documents * a.kv_heads, [&](std::int64_t unit, int thread) {
      const BackwardTile tile(a, call.scratch, thread);
      visit_document(a, x, unit / a.kv_heads, unit % a.kv_heads, tile);
    });
    return;
  }
  const std::int64_t tiles = tile_count(a.tokens);
  parallel_for(tiles * a.kv_heads, [&](std::int64_t unit, int thread) {
    const BackwardTile tile(a, call.scratch, thread);
    visit_key_tile(a, x, unit / a.kv_heads, unit % a.kv_heads, tile);
  });
  parallel_for(tiles * a.heads, [&](std::int64_t unit, int thread) {
    const BackwardTile tile(a, call.scratch, thread);
    visit_query_tile(a, x, tiles - 1 - unit / a.heads, unit % a.heads, tile);
  });
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
