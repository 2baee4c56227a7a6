#include "comm/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "comm/fold.h"

namespace heddle {
namespace {

constexpr int kTags = 1000;

/// Counts a call and its seconds when it is over, also where it fails.
class Timed {
 public:
  explicit Timed(Traffic& traffic) : traffic_(traffic) { ++traffic_.calls; }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;
  ~Timed() { traffic_.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  void moves(std::size_t sent, std::size_t received, std::size_t volume) {
    traffic_.bytes_sent += static_cast<std::int64_t>(sent);
    traffic_.bytes_received += static_cast<std::int64_t>(received);
    traffic_.volume += static_cast<std::int64_t>(volume);
  }

 private:
  Traffic& traffic_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// memcpy that may be given the same place, or null for nothing.
void copy(std::span<const std::byte> from, std::span<std::byte> to) {
  if (!from.empty() && from.data() != to.data()) std::memcpy(to.data(), from.data(), from.size());
}

bool overlap(std::span<const std::byte> a, std::span<const std::byte> b) {
  return !a.empty() && !b.empty() && a.data() < b.data() + b.size() && b.data() < a.data() + a.size();
}

}  // namespace

std::string_view collective_name(Collective collective) {
  constexpr std::array<std::string_view, kCollectives> names = {
      "all_gather", "reduce_scatter", "all_reduce", "broadcast", "all_to_all",
      "send",       "receive",        "exchange",   "barrier",   "split"};
  return names[static_cast<std::size_t>(collective)];
}

Traffic Counters::total() const {
  Traffic sum;
  for (const Traffic& kind : kinds) {
    sum.calls += kind.calls;
    sum.bytes_sent += kind.bytes_sent;
    sum.bytes_received += kind.bytes_received;
    sum.volume += kind.volume;
    sum.seconds += kind.seconds;
  }
  return sum;
}

std::string Communicator::describe(const Call& call) {
  if (call.what.empty()) return std::string(collective_name(call.kind));
  return fmt::format("{} ({})", collective_name(call.kind), call.what);
}

void Communicator::set_host(int ranks_on_host, int rank_on_host, int cores, CoreShare share) {
  ranks_on_host_ = ranks_on_host;
  rank_on_host_ = rank_on_host;
  cores_ = std::max(1, cores);
  core_share_ = share;
}

void Communicator::all_gather(std::span<const GatherPiece> pieces, std::string_view what) {
  const Call call{Collective::all_gather, what};
  std::size_t total = 0;
  const auto ranks = static_cast<std::size_t>(size_), place = static_cast<std::size_t>(rank_);
  for (const GatherPiece& piece : pieces) {
    if (piece.all.size() != piece.mine.size() * ranks) {
      fail("{}: {} bytes to gather from each of {} ranks into {}", describe(call), piece.mine.size(), size_,
           piece.all.size());
    }
    const auto own = piece.all.subspan(place * piece.mine.size(), piece.mine.size());
    if (overlap(piece.mine, piece.all) && piece.mine.data() != own.data()) {
      fail("{}: the source overlaps the target, but not at its place", describe(call));
    }
    total += piece.mine.size();
  }
  Timed timed(counters_.of(call.kind));
  timed.moves((ranks - 1) * total, (ranks - 1) * total, ranks * total);
  if (size_ > 1 && total > 0) return gather(call, pieces);
  for (const GatherPiece& piece : pieces) copy(piece.mine, piece.all);
}

void Communicator::all_gather(std::span<const std::byte> mine, std::span<std::byte> all, std::string_view what) {
  const GatherPiece piece{mine, all};
  all_gather(std::span(&piece, 1), what);
}

void Communicator::reduce_scatter(std::span<const ScatterPiece> pieces, ScatterOptions options, std::string_view what) {
  const Call call{Collective::reduce_scatter, what};
  if (options.active == -1) options.active = size_;
  if (options.active < 1 || options.active > size_) {
    fail("{}: {} of {} ranks are active", describe(call), options.active, size_);
  }
  std::size_t total = 0;
  const auto ranks = static_cast<std::size_t>(size_), place = static_cast<std::size_t>(rank_);
  const bool contributes = rank_ < options.active;
  for (const ScatterPiece& piece : pieces) {
    if (piece.dtype != DType::f32 && piece.dtype != DType::f64) {
      fail("{}: {} values; only float32 and float64 are summed", describe(call), torch_name(piece.dtype));
    }
    if (piece.target.size() % dtype_bytes(piece.dtype) != 0) {
      fail("{}: {} bytes are no whole number of {} values", describe(call), piece.target.size(),
           torch_name(piece.dtype));
    }
    if (piece.contribution.size() != piece.target.size() * ranks && (contributes || !piece.contribution.empty())) {
      fail("{}: {} bytes to scatter over {} ranks into {} bytes on each", describe(call), piece.contribution.size(),
           size_, piece.target.size());
    }
    if (!piece.base.empty() && piece.base.size() != piece.target.size()) {
      fail("{}: {} bytes to add to {} bytes", describe(call), piece.target.size(), piece.base.size());
    }
    const std::span<const std::byte> added_to(piece.added_to(), options.add ? piece.target.size() : 0);
    if (overlap(added_to, piece.contribution)) {
      fail("{}: the target overlaps the source and is added to", describe(call));
    }
    if (overlap(piece.target, piece.contribution) &&
        piece.target.data() != piece.contribution.data() + place * piece.target.size()) {
      fail("{}: the target overlaps the source, but not at its place", describe(call));
    }
    total += piece.target.size();
  }
  Timed timed(counters_.of(call.kind));
  timed.moves(contributes ? (ranks - 1) * total : 0,
              static_cast<std::size_t>(options.active - (contributes ? 1 : 0)) * total, ranks * total);
  if (size_ > 1 && total > 0) return scatter(call, pieces, options);
  for (const ScatterPiece& piece : pieces) {
    const std::byte* source = piece.contribution.data();
    fold(piece.dtype, Reduction::sum, piece.target.data(), std::span(&source, 1),
         options.add ? piece.added_to() : nullptr, piece.target.size());
  }
}

void Communicator::reduce_scatter(std::span<const std::byte> contribution, std::span<std::byte> target, DType dtype,
                                  ScatterOptions options, std::string_view what) {
  const ScatterPiece piece{contribution, target, dtype};
  reduce_scatter(std::span(&piece, 1), options, what);
}

void Communicator::all_reduce(std::span<const ReducePiece> pieces, Reduction reduction, Order order,
                              std::string_view what) {
  const Call call{Collective::all_reduce, what};
  std::size_t total = 0;
  for (const ReducePiece& piece : pieces) {
    if (!can_fold(piece.dtype)) {
      fail("{}: {} values; only float32, float64, int32 and int64 are reduced", describe(call),
           torch_name(piece.dtype));
    }
    if (piece.values.size() % dtype_bytes(piece.dtype) != 0) {
      fail("{}: {} bytes are no whole number of {} values", describe(call), piece.values.size(),
           torch_name(piece.dtype));
    }
    total += piece.values.size();
  }
  Timed timed(counters_.of(call.kind));
  const std::size_t moved = 2 * total * static_cast<std::size_t>(size_ - 1) / static_cast<std::size_t>(size_);
  timed.moves(moved, moved, 2 * total);
  if (size_ > 1 && total > 0) reduce(call, pieces, reduction, order);
}

void Communicator::all_reduce(std::span<std::byte> values, DType dtype, Reduction reduction, Order order,
                              std::string_view what) {
  const ReducePiece piece{values, dtype};
  all_reduce(std::span(&piece, 1), reduction, order, what);
}

void Communicator::broadcast(std::span<const std::span<std::byte>> pieces, int root, std::string_view what) {
  const Call call{Collective::broadcast, what};
  check_rank(call, root);
  std::size_t total = 0;
  for (const auto& piece : pieces) total += piece.size();
  Timed timed(counters_.of(call.kind));
  if (size_ == 1 || total == 0) return;
  timed.moves(rank_ == root ? total : 0, rank_ == root ? 0 : total, total);
  spread(call, pieces, root);
}

void Communicator::broadcast(std::span<std::byte> bytes, int root, std::string_view what) {
  broadcast(std::span<const std::span<std::byte>>(&bytes, 1), root, what);
}

void Communicator::all_to_all(std::span<const std::span<const std::byte>> out, std::span<const std::span<std::byte>> in,
                              std::string_view what) {
  const Call call{Collective::all_to_all, what};
  const auto ranks = static_cast<std::size_t>(size_), place = static_cast<std::size_t>(rank_);
  if (out.size() != ranks || in.size() != ranks) {
    fail("{}: {} pieces out and {} in; expected one for each of {} ranks", describe(call), out.size(), in.size(),
         size_);
  }
  if (out[place].size() != in[place].size()) {
    fail("{}: rank {} sends itself {} bytes and expects {}", describe(call), rank_, out[place].size(),
         in[place].size());
  }
  std::size_t sent = 0, received = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    if (r == place) continue;
    sent += out[r].size();
    received += in[r].size();
  }
  Timed timed(counters_.of(call.kind));
  timed.moves(sent, received, std::max(sent, received));
  copy(out[place], in[place]);
  if (size_ > 1) transpose(call, out, in);
}

void Communicator::all_to_all(std::span<const std::byte> out, std::span<std::byte> in, std::string_view what) {
  const auto ranks = static_cast<std::size_t>(size_);
  if (out.size() != in.size() || out.size() % ranks != 0) {
    fail("{}: {} bytes out and {} in; expected {} equal pieces", describe({Collective::all_to_all, what}), out.size(),
         in.size(), size_);
  }
  const std::size_t piece = out.size() / ranks;
  std::vector<std::span<const std::byte>> out_pieces(ranks);
  std::vector<std::span<std::byte>> in_pieces(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    out_pieces[r] = out.subspan(r * piece, piece);
    in_pieces[r] = in.subspan(r * piece, piece);
  }
  all_to_all(out_pieces, in_pieces, what);
}

void Communicator::check_rank(const Call& call, int rank) const {
  if (rank < 0 || rank >= size_) fail("{}: there is no rank {} among {}", describe(call), rank, size_);
}

void Communicator::check_peer(const Call& call, int rank, int tag) const {
  check_rank(call, rank);
  if (tag < 0 || tag >= kTags) fail("{}: tag {}; expected 0 to {}", describe(call), tag, kTags - 1);
}

void Communicator::send(std::span<const std::byte> bytes, int to, int tag, std::string_view what) {
  const Call call{Collective::send, what};
  check_peer(call, to, tag);
  if (to == rank_) fail("{}: rank {} sends to itself", describe(call), rank_);
  Timed timed(counters_.of(call.kind));
  timed.moves(bytes.size(), 0, bytes.size());
  if (!bytes.empty()) pass(call, bytes, to, {}, -1, tag);
}

void Communicator::receive(std::span<std::byte> bytes, int from, int tag, std::string_view what) {
  const Call call{Collective::receive, what};
  check_peer(call, from, tag);
  if (from == rank_) fail("{}: rank {} receives from itself", describe(call), rank_);
  Timed timed(counters_.of(call.kind));
  timed.moves(0, bytes.size(), bytes.size());
  if (!bytes.empty()) pass(call, {}, -1, bytes, from, tag);
}

void Communicator::exchange(std::span<const std::byte> out, int to, std::span<std::byte> in, int from, int tag,
                            std::string_view what) {
  const Call call{Collective::exchange, what};
  check_peer(call, to, tag);
  check_peer(call, from, tag);
  Timed timed(counters_.of(call.kind));
  if ((to == rank_) != (from == rank_)) fail("{}: rank {} is only one end of its message", describe(call), rank_);
  if (to == rank_) {
    if (out.size() != in.size()) {
      fail("{}: rank {} sends itself {} bytes and expects {}", describe(call), rank_, out.size(), in.size());
    }
    return copy(out, in);
  }
  timed.moves(out.size(), in.size(), std::max(out.size(), in.size()));
  if (!out.empty() || !in.empty()) pass(call, out, out.empty() ? -1 : to, in, in.empty() ? -1 : from, tag);
}

void Communicator::barrier(std::string_view what) {
  const Call call{Collective::barrier, what};
  Timed timed(counters_.of(call.kind));
  if (size_ > 1) meet(call);
}

std::unique_ptr<Communicator> Communicator::split(int color, int key, std::string_view what) {
  const Call call{Collective::split, what};
  Timed timed(counters_.of(call.kind));
  auto group = divide(call, color, key);
  if (group) group->set_time_limit(time_limit_);
  return group;
}

}  // namespace heddle
