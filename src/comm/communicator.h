#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/cores.h"
#include "base/dtype.h"

namespace heddle {

/// Kinds of calls that a communicator counts and times apart.
enum class Collective : std::uint8_t {
  all_gather,
  reduce_scatter,
  all_reduce,
  broadcast,
  all_to_all,
  send,
  receive,
  exchange,
  barrier,
  split,
};
inline constexpr std::size_t kCollectives = 10;
/// "all_gather", "reduce_scatter", ...
std::string_view collective_name(Collective collective);

/// What one rank did by calls of one kind. Bytes follow from the arguments, so every transport counts the same; a
/// transport that reads its neighbour's memory in place moves them all the same. Of a call over N ranks:
///   all_gather      sends (N-1) * mine,  receives (N-1) * mine;  volume is `all`
///   reduce_scatter  sends (N-1) * piece, receives (N-1) * piece; volume is `contribution`
///   all_reduce      is both, one after the other; volume is twice the values
///   others          what is given to and taken from other ranks; volume is the larger of the two
/// `volume` is the measure of Rajbhandari et al. 2020 (ZeRO, arXiv:1910.02054), which takes (N-1)/N as 1.
struct Traffic {
  std::int64_t calls = 0;
  std::int64_t bytes_sent = 0;
  std::int64_t bytes_received = 0;
  std::int64_t volume = 0;  ///< bytes
  double seconds = 0;       ///< waiting for other ranks included
};

struct Counters {
  std::array<Traffic, kCollectives> kinds;
  Traffic& of(Collective collective) { return kinds[static_cast<std::size_t>(collective)]; }
  const Traffic& of(Collective collective) const { return kinds[static_cast<std::size_t>(collective)]; }
  Traffic total() const;
};

/// One tensor of an all-gather: `all` holds size() pieces of mine.size() bytes, by rank. `mine` may lie at its place in
/// `all`, where it is left alone.
struct GatherPiece {
  std::span<const std::byte> mine;
  std::span<std::byte> all;
};

/// One tensor of a reduce-scatter: `contribution` holds size() pieces of target.size() bytes; piece i goes to rank i.
/// `target` may lie at its own rank's place in `contribution`, unless it is added to and has no `base` apart. Ranks
/// that are not active may leave `contribution` empty.
struct ScatterPiece {
  std::span<const std::byte> contribution;
  std::span<std::byte> target;
  DType dtype = DType::f32;
  std::span<const std::byte> base =
      {};  ///< as large as the target, which it may be: what is added to; empty: the target

  const std::byte* added_to() const { return base.empty() ? target.data() : base.data(); }
};

/// One tensor of an all-reduce, replaced by its result.
struct ReducePiece {
  std::span<std::byte> values;
  DType dtype = DType::f32;
};

/// How sums are formed.
///   ordered  strictly from left to right in the order of ranks: one rounding after another, the same bits on every
///            transport and for every size of message.
///   fast     in whatever order suits the transport. To threads and MPI that is the ordered sum, which was measured to
///            cost them nothing (docs/communication.md).
enum class Order : std::uint8_t { ordered, fast };

enum class Reduction : std::uint8_t { sum, max };

struct ScatterOptions {
  bool add = false;  ///< the sum starts from what the base holds, as if that came from a rank before 0
  int active = -1;   ///< ranks from this one on contribute nothing; -1: all contribute
  Order order = Order::ordered;
};

/// One rank's end of a group of ranks. Calls block until this rank's part is done and its memory is free again. All
/// ranks of the group make the same collective calls in the same order, with the same sizes and options; one thread at
/// a time uses one communicator, and different communicators may be used at once.
///
/// Calls and counters belong to the thread that makes the calls.
/// `what` names the call where something goes wrong ("gradients of model.layers.3"); it must live as long as the call.
/// Calls throw Error when another rank failed, when ranks do not make the same call (where the transport sees that), or
/// when the time limit is over; after that, the communicator is of no more use and the job must end (run_job does
/// that).
///
/// Overloads with a list do for several tensors in one call what the single ones do for one: small tensors share a
/// message. The tensors of a list do not overlap.
class Communicator {
 public:
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator() = default;

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// "alone", "threads" or "mpi".
  virtual std::string_view transport() const = 0;

  /// Ranks of this group on this rank's host, and this rank's number among them.
  int ranks_on_host() const { return ranks_on_host_; }
  int rank_on_host() const { return rank_on_host_; }
  /// Cores for this rank. Ranks on one host divide its cores; where a launcher bound them to cores, each has its own.
  int cores() const { return cores_; }
  /// Which part they are of the cores that this process may use: ranks that may use the same ones divide them.
  CoreShare core_share() const { return core_share_; }
  /// Bytes that this communicator holds for messages on their way, at most, whatever the size of messages.
  virtual std::size_t staging_bytes() const = 0;

  void all_gather(std::span<const GatherPiece> pieces, std::string_view what = {});
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, std::string_view what = {});

  /// On rank i, of pieces c_r[i] in the contributions of ranks r:
  ///   target = (add ? base : 0) + c_0[i] + c_1[i] + ... + c_{active-1}[i]
  /// Without `add` the sum starts from c_0[i] itself. Element types f32 and f64, summed in that type.
  void reduce_scatter(std::span<const ScatterPiece> pieces, ScatterOptions options = {}, std::string_view what = {});
  void reduce_scatter(std::span<const std::byte> contribution, std::span<std::byte> target, DType dtype,
                      ScatterOptions options = {}, std::string_view what = {});

  /// On every rank: values = v_0 + v_1 + ... + v_{size-1}, or their maximum; the same bits on all ranks. Element types
  /// f32, f64, i32, i64. A NaN anywhere makes the maximum NaN.
  void all_reduce(std::span<const ReducePiece> pieces, Reduction reduction = Reduction::sum,
                  Order order = Order::ordered, std::string_view what = {});
  void all_reduce(std::span<std::byte> values, DType dtype, Reduction reduction = Reduction::sum,
                  Order order = Order::ordered, std::string_view what = {});
  template <typename T>
  void all_reduce(std::span<T> values, Reduction reduction = Reduction::sum, std::string_view what = {}) {
    all_reduce(std::as_writable_bytes(values), DTypeOf<T>::value, reduction, Order::ordered, what);
  }

  void broadcast(std::span<const std::span<std::byte>> pieces, int root, std::string_view what = {});
  void broadcast(std::span<std::byte> bytes, int root, std::string_view what = {});

  /// out[i] goes to rank i, which takes it as its in[rank()]; lists of size() pieces, each pair of ranks agrees on the
  /// size of theirs. Sends what MPI calls alltoallv.
  void all_to_all(std::span<const std::span<const std::byte>> out, std::span<const std::span<std::byte>> in,
                  std::string_view what = {});
  /// size() equal pieces each.
  void all_to_all(std::span<const std::byte> out, std::span<std::byte> in, std::string_view what = {});

  /// Messages between two ranks. Sizes of both ends are equal, tags in [0, 1000). Between two ranks those of one tag
  /// arrive in the order in which they were sent. A send may wait until its receive is called.
  void send(std::span<const std::byte> bytes, int to, int tag, std::string_view what = {});
  void receive(std::span<std::byte> bytes, int from, int tag, std::string_view what = {});
  /// Sends and receives at once, so that ranks in a ring do not wait for each other in a circle.
  void exchange(std::span<const std::byte> out, int to, std::span<std::byte> in, int from, int tag,
                std::string_view what = {});

  void barrier(std::string_view what = {});

  /// A group of the ranks that gave the same colour, ordered by (key, rank); null where `color` is negative. Called by
  /// all ranks of this group. The new communicator has its own counters, and this one's time limit.
  std::unique_ptr<Communicator> split(int color, int key, std::string_view what = {});

  const Counters& counters() const { return counters_; }
  void reset_counters() { counters_ = {}; }

  /// How long a call may wait for other ranks. When it is over, the call throws Error, which names the collective,
  /// `what`, and the ranks that have not come (threads: exactly; MPI: those from which data is missing).
  void set_time_limit(std::chrono::milliseconds limit) { time_limit_ = limit; }
  std::chrono::milliseconds time_limit() const { return time_limit_; }

 protected:
  /// What one call is, for messages and for comparing ranks.
  struct Call {
    Collective kind;
    std::string_view what;
  };

  Communicator(int rank, int size) : rank_(rank), size_(size), ranks_on_host_(size), rank_on_host_(rank) {}
  void set_host(int ranks_on_host, int rank_on_host, int cores, CoreShare share);

  /// "all_gather (weights of model.layers.3)".
  static std::string describe(const Call& call);

  // The transports. Arguments are checked, and calls of one rank or of no bytes are done already (but for split);
  // options.active is in [1, size()]. Tensors of a list may be empty.
  virtual void gather(const Call& call, std::span<const GatherPiece> pieces) = 0;
  virtual void scatter(const Call& call, std::span<const ScatterPiece> pieces, const ScatterOptions& options) = 0;
  virtual void reduce(const Call& call, std::span<const ReducePiece> pieces, Reduction reduction, Order order) = 0;
  virtual void spread(const Call& call, std::span<const std::span<std::byte>> pieces, int root) = 0;
  virtual void transpose(const Call& call, std::span<const std::span<const std::byte>> out,
                         std::span<const std::span<std::byte>> in) = 0;
  /// Either end may be absent (rank -1).
  virtual void pass(const Call& call, std::span<const std::byte> out, int to, std::span<std::byte> in, int from,
                    int tag) = 0;
  virtual void meet(const Call& call) = 0;
  virtual std::unique_ptr<Communicator> divide(const Call& call, int color, int key) = 0;

 private:
  void check_rank(const Call& call, int rank) const;
  void check_peer(const Call& call, int rank, int tag) const;

  int rank_, size_;
  int ranks_on_host_, rank_on_host_, cores_ = 1;
  CoreShare core_share_;
  std::chrono::milliseconds time_limit_ = std::chrono::minutes(10);
  Counters counters_;
};

}  // namespace heddle
