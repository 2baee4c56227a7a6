#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/error.h"
#include "base/threads.h"
#include "ops/kernel.h"

namespace heddle::cpu {

/// Queries, and keys, of one tile. Tiles lie at multiples of kTile of the stream whatever the documents and threads, so
/// that sums are always cut at the same places. A tile's scores (64 x 64 f32) take a third of a first-level cache.
inline constexpr std::int64_t kTile = 64;
/// Rows of a tile in scratch are padded with zeros to a multiple of the widest vector.
inline constexpr std::int64_t kRowPadding = 16;
inline constexpr std::int64_t kMaxHeadDim = 512;

/// Which probabilities attention dropout keeps: the one of query t, head n and key j (indices in the stream) is kept
/// where
///   word (j % 4) of philox(seed, n << 52 | t << 26 | j / 4, dropout_stream << 40 ^ micro_batch) >> 8 >= p * 2^24,
/// that is uniform_from(word) >= p. One call serves four neighbouring keys. Bounds: 2^12 heads, 2^26 tokens.
struct AttentionDropout {
  bool active = false;
  std::uint32_t threshold = 0;  ///< ceil(p * 2^24)
  float factor = 1.0f;          ///< 1 / (1 - p)
  std::uint64_t key = 0;
  std::uint64_t counter_high = 0;
};

/// What attention and its backward read from a call: letters as in ops/operations.md.
struct AttentionCall {
  std::int64_t tokens;    ///< T
  std::int64_t heads;     ///< N
  std::int64_t kv_heads;  ///< K
  std::int64_t head_dim;  ///< D
  std::int64_t padded;    ///< D up to a multiple of kRowPadding
  std::int64_t group;     ///< query heads for each key-value head
  std::int64_t past;      ///< position of query 0 among the keys; 0 unless cached
  std::int64_t window;    ///< keys that a query sees, itself among them; no window: more than there are
  bool cached;
  bool in_bf16;  ///< q, k and v are: they, p and ds enter products as bf16
  float scale;
  float operand_scale;  ///< factor of queries as they are loaded: scale; 1 where bf16 must stay bf16
  float sum_scale;      ///< factor of finished sums: what is left of scale
  float softcap;        ///< 0: none
  AttentionDropout dropout;
  const std::int32_t* document_starts;
  std::int64_t documents;

  AttentionCall(const KernelCall& call, const TensorView& q, const TensorView& k, const TensorView& starts)
      : tokens(q.shape[0]),
        heads(q.shape[1]),
        kv_heads(k.shape[1]),
        head_dim(q.shape[2]),
        padded((head_dim + kRowPadding - 1) / kRowPadding * kRowPadding),
        group(heads / kv_heads),
        past(0),
        window(call.attributes.integer("window")),
        cached(call.attributes.integer("cached") != 0),
        in_bf16(q.dtype == DType::bf16 && k.dtype == DType::bf16),
        scale(static_cast<float>(call.attributes.real("scale", 1.0))),
        operand_scale(in_bf16 ? 1.0f : scale),
        sum_scale(in_bf16 ? scale : 1.0f),
        softcap(static_cast<float>(call.attributes.real("softcap"))),
        document_starts(starts.as<const std::int32_t>()),
        documents(call.scalars.documents) {
    HEDDLE_CHECK(heads % kv_heads == 0);
    HEDDLE_CHECK(head_dim <= kMaxHeadDim);
    HEDDLE_CHECK(scale > 0.0f);
    if (cached) past = call.scalars.past;
    if (window <= 0) window = std::numeric_limits<std::int64_t>::max() / 2;
    const double p = call.attributes.real("dropout");
    if (p > 0.0) {
      HEDDLE_CHECK(!cached && heads <= (1 << 12) && tokens <= (1 << 26));
      const auto stream = static_cast<std::uint64_t>(call.attributes.integer("dropout_stream"));
      dropout.active = true;
      dropout.threshold = static_cast<std::uint32_t>(std::ceil(p * 0x1.0p24));
      dropout.factor = static_cast<float>(1.0 / (1.0 - p));
      dropout.key = call.scalars.seed;
      dropout.counter_high = (stream << 40) ^ call.scalars.micro_batch;
    }
  }

  std::int64_t keys() const { return past + tokens; }
  /// Index of the document of token t.
  std::int64_t document_of(std::int64_t t) const {
    return std::upper_bound(document_starts, document_starts + documents + 1, t) - document_starts - 1;
  }
  bool begins_document(std::int64_t t) const { return document_starts[document_of(t)] == t; }
};

/// Consecutive tiles that one unit of work holds, up to as many as scratch has room for. Blocks change no bits.
inline constexpr int kMaxTilesPerBlock = 4;
/// So many that blocks of `tiles` tiles in all make enough work for all threads: four each, since they differ in
/// length. Operands in bf16 pairs (`depth` 2) take half of the second-level cache: 1.07x of a backward by 4 instead
/// of 2.
inline int tiles_per_block(const AttentionCall& a, std::int64_t tiles, std::int64_t depth) {
  int block = depth == 2 && a.padded <= kMaxHeadDim / 2 ? kMaxTilesPerBlock : 2;
  while (block > 1 && tiles < std::int64_t{4} * block * threads()) block /= 2;
  return block;
}

/// Whether every thread's share of `blocks` blocks of `block` tiles begins with a document, so that it can be worked on
/// in any order beside the others': then a thread takes the tokens that are its own in other kernels too.
inline bool shares_begin_documents(const AttentionCall& a, std::int64_t blocks, std::int64_t block) {
  if (a.cached || blocks % threads() != 0) return false;
  for (std::int64_t share = 1; share < threads(); ++share) {
    const std::int64_t first = blocks / threads() * share * block * kTile;
    if (!a.begins_document(first)) return false;
  }
  return true;
}

struct Range {
  std::int64_t begin, end;
  std::int64_t count() const { return end - begin; }
};

inline std::int64_t tile_of(std::int64_t t) { return t / kTile; }
inline std::int64_t tile_count(std::int64_t rows) { return (rows + kTile - 1) / kTile; }

/// The range with the others of its first and last pair of rows.
inline Range whole_pairs(Range rows) { return {rows.begin / 2 * 2, (rows.end + 1) / 2 * 2}; }

/// Rows of tile `tile` that lie in `limits`.
inline Range rows_of_tile(std::int64_t tile, Range limits) {
  return {std::max(tile * kTile, limits.begin), std::min((tile + 1) * kTile, limits.end)};
}

/// The keys that each of up to kTile consecutive queries sees: first[i] <= j <= last[i]. Both ascend with i. Queries
/// behind the last one see nothing.
struct VisibleKeys {
  std::array<std::int32_t, kTile> first;
  std::array<std::int32_t, kTile> last;

  VisibleKeys() = default;
  VisibleKeys(const AttentionCall& a, std::int64_t begin, std::int64_t count) {
    std::int64_t document = a.cached ? 0 : a.document_of(begin);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t position = a.past + begin + i;
      std::int64_t start = 0;
      if (!a.cached) {
        while (a.document_starts[document + 1] <= position) ++document;
        start = a.document_starts[document];
      }
      first[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(std::max(start, position - a.window + 1));
      last[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(position);
    }
    for (auto i = static_cast<std::size_t>(count); i < first.size(); ++i) {
      first[i] = std::numeric_limits<std::int32_t>::max();
      last[i] = -1;
    }
  }

  std::int64_t first_of(std::int64_t i) const { return first[static_cast<std::size_t>(i)]; }
  std::int64_t last_of(std::int64_t i) const { return last[static_cast<std::size_t>(i)]; }
  /// Those of the first `count` queries that see any of the keys.
  Range that_see(Range keys, std::int64_t count) const {
    Range r{0, count};
    while (r.begin < count && last_of(r.begin) < keys.begin) ++r.begin;
    while (r.end > r.begin && first_of(r.end - 1) >= keys.end) --r.end;
    return r;
  }
  /// Those of the keys that any of the queries sees; each of them sees one.
  Range seen_by(Range queries, Range keys) const {
    return {std::max(keys.begin, first_of(queries.begin)), std::min(keys.end, last_of(queries.end - 1) + 1)};
  }
  /// Each of the queries sees all of the keys.
  bool see_all(Range queries, Range keys) const {
    return first_of(queries.end - 1) <= keys.begin && last_of(queries.begin) >= keys.end - 1;
  }
};

/// Hands out pieces of a thread's scratch, 64-byte aligned.
class ScratchPieces {
 public:
  ScratchPieces(const Scratch& scratch, int thread)
      : next_(
            reinterpret_cast<float*>(scratch.per_thread + static_cast<std::size_t>(thread) * scratch.bytes_per_thread)),
        left_(static_cast<std::int64_t>(scratch.bytes_per_thread / sizeof(float))) {}

  float* take(std::int64_t floats) {
    const std::int64_t rounded = (floats + 15) / 16 * 16;
    left_ -= rounded;
    HEDDLE_CHECK(left_ >= 0);
    float* piece = next_;
    next_ += rounded;
    return piece;
  }

 private:
  float* next_;
  std::int64_t left_;
};

}  // namespace heddle::cpu
