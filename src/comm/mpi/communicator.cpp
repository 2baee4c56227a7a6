// Ranks that are processes over MPI, by messages between pairs of them. The collectives are our own, so that sums have
// our order whatever the library is, memory for messages is bounded, and a call that waits can say for whom. Only calls
// of MPI-3.1.
#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/fold.h"
#include "comm/mpi/messages.h"
#include "comm/mpi/session.h"

namespace heddle {
namespace {

/// Longest message. Open MPI's own protocols for longer ones are slower on one host; docs/communication.md has figures.
constexpr std::size_t kMessageBytes = std::size_t{512} << 10;
/// Most that one communicator holds for contributions that wait to be summed.
constexpr std::size_t kStagingBytes = std::size_t{8} << 20;
/// Up to here, all-reduce sends everything to everyone: one message's time in place of two.
constexpr std::size_t kSmallReduceBytes = std::size_t{16} << 10;
/// Rounds of messages on their way at a time: while one is summed up, the next ones come in.
constexpr std::size_t kDepth = 4;
constexpr std::size_t kGrain = 64;
/// Tags of collectives lie above those of messages between two ranks.
constexpr int kCollectiveTags = 1000;

/// Bytes of staging for one message of one peer.
std::size_t slot_bytes(int ranks) {
  const std::size_t slots = kDepth * static_cast<std::size_t>(ranks - 1);
  return std::max(kGrain, std::min(kMessageBytes, kStagingBytes / slots / kGrain * kGrain));
}

class MpiCommunicator final : public Communicator {
 public:
  /// Takes over `comm`.
  MpiCommunicator(std::shared_ptr<MpiSession> session, MPI_Comm comm, int rank, int size)
      : Communicator(rank, size), session_(std::move(session)), comm_(comm) {
    const MpiHost host = find_mpi_host(*session_, comm_);
    set_host(host.ranks, host.rank, host.cores, host.share);
    messenger_.emplace(*session_, comm_, host.is_crowded);
    staging_.resize(staging_bytes());
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  }
  ~MpiCommunicator() override {
    if (std::uncaught_exceptions() == 0) {
      session_->locked([&] { return MPI_Comm_free(&comm_); });
    }
  }
  std::string_view transport() const override { return "mpi"; }
  std::size_t staging_bytes() const override { return mpi_staging_bytes(size()); }

 private:
  /// Calls post(message, requests) for each message of the cut, and complete(message) once its requests are done, in
  /// order; up to kDepth messages are on their way.
  template <typename Post, typename Complete>
  void stream(const Call& call, std::size_t messages, Post&& post, Complete&& complete) {
    const std::string name = describe(call);
    std::array<Requests, kDepth> rounds;
    for (std::size_t m = 0; m < messages + kDepth; ++m) {
      if (m >= kDepth) {
        messenger_->finish(rounds[m % kDepth], name, time_limit());
        complete(m - kDepth);
      }
      if (m < messages) post(m, rounds[m % kDepth]);
    }
  }
  static constexpr auto kNothing = [](std::size_t) {};
  static int tag_of(const Call& call) { return kCollectiveTags + static_cast<int>(call.kind); }

  template <typename Function>
  void for_each_peer(Function&& function) const {
    for (int step = 1; step < size(); ++step) function((rank() + step) % size());
  }
  /// Where the contribution of a peer to message m waits to be summed.
  std::byte* slot(std::size_t m, int peer) {
    const auto index = static_cast<std::size_t>(peer < rank() ? peer : peer - 1);
    return staging_.data() + (m % kDepth * static_cast<std::size_t>(size() - 1) + index) * slot_bytes(size());
  }
  static Runs one_run(const std::byte* address, std::size_t bytes) {
    Runs runs;
    runs.add(address, bytes);
    return runs;
  }
  /// The runs of a message whose tensors start at base(tensor).
  template <typename Base>
  static Runs runs_of(const Cut& cut, std::size_t m, Base&& base) {
    Runs runs;
    for (const Cut::Part& part : cut.parts_of(cut.messages[m])) runs.add(base(part.tensor) + part.offset, part.bytes);
    return runs;
  }

  void gather(const Call& call, std::span<const GatherPiece> pieces) override {
    std::vector<std::size_t> sizes;
    for (const GatherPiece& piece : pieces) {
      sizes.push_back(piece.mine.size());
      std::byte* place = piece.all.data() + static_cast<std::size_t>(rank()) * piece.mine.size();
      if (!piece.mine.empty() && piece.mine.data() != place) std::copy(piece.mine.begin(), piece.mine.end(), place);
    }
    const Cut cut(sizes, kMessageBytes, kGrain);
    const auto place_of = [&](int rank) {
      return [&pieces, rank](std::size_t t) {
        return pieces[t].all.data() + static_cast<std::size_t>(rank) * pieces[t].mine.size();
      };
    };
    const auto post = [&](std::size_t m, Requests& requests) {
      const Runs mine = runs_of(cut, m, place_of(rank()));
      for_each_peer(
          [&](int peer) { messenger_->receive(requests, runs_of(cut, m, place_of(peer)), peer, tag_of(call)); });
      for_each_peer([&](int peer) { messenger_->send(requests, mine, peer, tag_of(call)); });
    };
    stream(call, cut.messages.size(), post, kNothing);
  }

  void scatter(const Call& call, std::span<const ScatterPiece> pieces, const ScatterOptions& options) override {
    std::vector<std::size_t> sizes;
    for (const ScatterPiece& piece : pieces) sizes.push_back(piece.target.size());
    const Cut cut(sizes, slot_bytes(size()), kGrain);
    const auto contribution_to = [&](int rank) {
      return [&pieces, rank](std::size_t t) {
        return pieces[t].contribution.data() + static_cast<std::size_t>(rank) * pieces[t].target.size();
      };
    };
    const auto post = [&](std::size_t m, Requests& requests) {
      for_each_peer([&](int peer) {
        if (peer >= options.active) return;
        messenger_->receive(requests, one_run(slot(m, peer), cut.messages[m].bytes), peer, tag_of(call));
      });
      if (rank() >= options.active) return;
      for_each_peer(
          [&](int peer) { messenger_->send(requests, runs_of(cut, m, contribution_to(peer)), peer, tag_of(call)); });
    };
    const auto complete = [&](std::size_t m) {
      fold_message(cut, m, m, options.active, Reduction::sum, [&](std::size_t t) {
        const std::byte* own = rank() < options.active ? contribution_to(rank())(t) : nullptr;
        return Folded{pieces[t].dtype, own, pieces[t].target.data(), options.add ? pieces[t].added_to() : nullptr};
      });
    };
    stream(call, cut.messages.size(), post, complete);
  }

  /// One tensor to be folded: this rank's contribution, if it is active, where the result goes, and what it is added
  /// to.
  struct Folded {
    DType dtype;
    const std::byte* own;
    std::byte* target;
    const std::byte* base = nullptr;
  };
  /// Folds what peers sent of message m into the slots of round `round`, and this rank's own.
  template <typename Tensor>
  void fold_message(const Cut& cut, std::size_t m, std::size_t round, int active, Reduction reduction,
                    Tensor&& tensor) {
    sources_.resize(static_cast<std::size_t>(active));
    std::size_t start = 0;
    for (const Cut::Part& part : cut.parts_of(cut.messages[m])) {
      const Folded folded = tensor(part.tensor);
      for (int r = 0; r < active; ++r) {
        sources_[static_cast<std::size_t>(r)] = r == rank() ? folded.own + part.offset : slot(round, r) + start;
      }
      const std::byte* base = folded.base != nullptr ? folded.base + part.offset : nullptr;
      fold(folded.dtype, reduction, folded.target + part.offset, sources_, base, part.bytes);
      start += part.bytes;
    }
  }

  void reduce(const Call& call, std::span<const ReducePiece> pieces, Reduction reduction, Order) override {
    std::vector<std::size_t> sizes;
    std::size_t total = 0;
    for (const ReducePiece& piece : pieces) {
      sizes.push_back(piece.values.size());
      total += piece.values.size();
    }
    const auto values = [&](std::size_t t) { return pieces[t].values.data(); };
    const auto in_place = [&](std::size_t t) { return Folded{pieces[t].dtype, values(t), values(t)}; };
    if (total <= std::min(kSmallReduceBytes, slot_bytes(size()))) {
      const Cut cut(sizes, total, 1);
      const auto post = [&](std::size_t m, Requests& requests) {
        for_each_peer(
            [&](int peer) { messenger_->receive(requests, one_run(slot(m, peer), total), peer, tag_of(call)); });
        for_each_peer([&](int peer) { messenger_->send(requests, runs_of(cut, m, values), peer, tag_of(call)); });
      };
      return stream(call, 1, post, [&](std::size_t m) { fold_message(cut, m, m, size(), reduction, in_place); });
    }
    // Message kN + i is summed by rank i: a round of N messages takes a reduce-scatter, then an all-gather.
    const auto ranks = static_cast<std::size_t>(size());
    const std::size_t rounds = (total + ranks * slot_bytes(size()) - 1) / (ranks * slot_bytes(size()));
    const std::size_t share = (total + rounds * ranks - 1) / (rounds * ranks);
    const Cut cut(sizes, (share + kGrain - 1) / kGrain * kGrain, kGrain);
    reduce_rounds(call, cut, values,
                  [&](std::size_t m, std::size_t round) { fold_message(cut, m, round, size(), reduction, in_place); });
  }

  template <typename Values, typename Fold>
  void reduce_rounds(const Call& call, const Cut& cut, Values&& values, Fold&& fold_own) {
    const std::string name = describe(call);
    const auto ranks = static_cast<std::size_t>(size());
    const std::size_t rounds = (cut.messages.size() + ranks - 1) / ranks;
    const int tag = tag_of(call);
    std::array<Requests, kDepth> contributions, results;
    const auto message_of = [&](std::size_t round, int owner) {
      return round * ranks + static_cast<std::size_t>(owner);
    };
    const auto exists = [&](std::size_t round, int owner) { return message_of(round, owner) < cut.messages.size(); };
    const auto contribute = [&](std::size_t round) {
      Requests& requests = contributions[round % kDepth];
      if (exists(round, rank())) {
        const std::size_t bytes = cut.messages[message_of(round, rank())].bytes;
        for_each_peer([&](int peer) { messenger_->receive(requests, one_run(slot(round, peer), bytes), peer, tag); });
      }
      for_each_peer([&](int peer) {
        if (exists(round, peer)) messenger_->send(requests, runs_of(cut, message_of(round, peer), values), peer, tag);
      });
    };
    const auto hand_out = [&](std::size_t round) {
      Requests& requests = results[round % kDepth];
      messenger_->finish(requests, name, time_limit());
      for_each_peer([&](int peer) {
        if (exists(round, peer)) {
          messenger_->receive(requests, runs_of(cut, message_of(round, peer), values), peer, tag + kResultTags);
        }
      });
      if (!exists(round, rank())) return;
      const Runs own = runs_of(cut, message_of(round, rank()), values);
      for_each_peer([&](int peer) { messenger_->send(requests, own, peer, tag + kResultTags); });
    };
    contribute(0);
    for (std::size_t round = 0; round < rounds; ++round) {
      if (round + 1 < rounds) contribute(round + 1);
      messenger_->finish(contributions[round % kDepth], name, time_limit());
      if (exists(round, rank())) fold_own(message_of(round, rank()), round);
      hand_out(round);
    }
    for (Requests& requests : results) messenger_->finish(requests, name, time_limit());
  }

  /// Down a binomial tree: rank r, counted from the root, hears from r without its lowest bit.
  void spread(const Call& call, std::span<const std::span<std::byte>> pieces, int root) override {
    std::vector<std::size_t> sizes;
    for (const auto& piece : pieces) sizes.push_back(piece.size());
    const Cut cut(sizes, kMessageBytes, kGrain);
    const auto bytes_of = [&](std::size_t t) { return pieces[t].data(); };
    const int place = (rank() - root + size()) % size();
    const auto rank_at = [&](int other) { return (other + root) % size(); };
    int bit = 1;
    while (bit < size() && (place & bit) == 0) bit *= 2;  // the lowest bit; the children are place + smaller ones
    const std::string name = describe(call);
    std::array<Requests, kDepth> arrivals, departures;
    const auto expect = [&](std::size_t m) {
      if (place == 0 || m >= cut.messages.size()) return;
      messenger_->receive(arrivals[m % kDepth], runs_of(cut, m, bytes_of), rank_at(place - bit), tag_of(call));
    };
    expect(0);
    for (std::size_t m = 0; m < cut.messages.size(); ++m) {
      expect(m + 1);
      messenger_->finish(arrivals[m % kDepth], name, time_limit());
      messenger_->finish(departures[m % kDepth], name, time_limit());
      for (int child = bit / 2; child > 0; child /= 2) {
        if (place + child >= size()) continue;
        messenger_->send(departures[m % kDepth], runs_of(cut, m, bytes_of), rank_at(place + child), tag_of(call));
      }
    }
    for (Requests& requests : departures) messenger_->finish(requests, name, time_limit());
  }

  void transpose(const Call& call, std::span<const std::span<const std::byte>> out,
                 std::span<const std::span<std::byte>> in) override {
    std::size_t longest = 0;
    for_each_peer([&](int peer) {
      const auto p = static_cast<std::size_t>(peer);
      longest = std::max({longest, out[p].size(), in[p].size()});
    });
    const auto post = [&](std::size_t m, Requests& requests) {
      for_each_peer(
          [&](int peer) { receive_chunk(requests, in[static_cast<std::size_t>(peer)], m, peer, tag_of(call)); });
      for_each_peer(
          [&](int peer) { send_chunk(requests, out[static_cast<std::size_t>(peer)], m, peer, tag_of(call)); });
    };
    stream(call, chunks(longest), post, kNothing);
  }

  void pass(const Call& call, std::span<const std::byte> out, int to, std::span<std::byte> in, int from,
            int tag) override {
    const auto post = [&](std::size_t m, Requests& requests) {
      if (from >= 0) receive_chunk(requests, in, m, from, tag);
      if (to >= 0) send_chunk(requests, out, m, to, tag);
    };
    stream(call, chunks(std::max(out.size(), in.size())), post, kNothing);
  }

  static std::size_t chunks(std::size_t bytes) { return (bytes + kMessageBytes - 1) / kMessageBytes; }
  void send_chunk(Requests& requests, std::span<const std::byte> bytes, std::size_t m, int peer, int tag) {
    const std::size_t begin = m * kMessageBytes;
    if (begin >= bytes.size()) return;
    messenger_->send(requests, one_run(bytes.data() + begin, std::min(kMessageBytes, bytes.size() - begin)), peer, tag);
  }
  void receive_chunk(Requests& requests, std::span<std::byte> bytes, std::size_t m, int peer, int tag) {
    const std::size_t begin = m * kMessageBytes;
    if (begin >= bytes.size()) return;
    messenger_->receive(requests, one_run(bytes.data() + begin, std::min(kMessageBytes, bytes.size() - begin)), peer,
                        tag);
  }

  /// Everyone hears from everyone, so that a rank that is missing is known by name.
  void meet(const Call& call) override {
    const std::byte out{};
    std::vector<std::byte> in(static_cast<std::size_t>(size()));
    const auto post = [&](std::size_t, Requests& requests) {
      for_each_peer([&](int peer) {
        messenger_->receive(requests, one_run(&in[static_cast<std::size_t>(peer)], 1), peer, tag_of(call));
      });
      for_each_peer([&](int peer) { messenger_->send(requests, one_run(&out, 1), peer, tag_of(call)); });
    };
    stream(call, 1, post, kNothing);
  }

  std::unique_ptr<Communicator> divide(const Call& call, int color, int key) override {
    if (size() > 1) meet(call);  // which has a time limit, other than MPI's split
    MPI_Comm group = MPI_COMM_NULL;
    session_->call("MPI_Comm_split",
                   [&] { return MPI_Comm_split(comm_, color < 0 ? MPI_UNDEFINED : color, key, &group); });
    if (group == MPI_COMM_NULL) return nullptr;
    int place = 0, ranks = 0;
    session_->call("MPI_Comm_rank", [&] { return MPI_Comm_rank(group, &place); });
    session_->call("MPI_Comm_size", [&] { return MPI_Comm_size(group, &ranks); });
    return std::make_unique<MpiCommunicator>(session_, group, place, ranks);
  }

  /// Results of an all-reduce have their own tags, since contributions of the next round may overtake them.
  static constexpr int kResultTags = static_cast<int>(kCollectives);

  std::shared_ptr<MpiSession> session_;
  MPI_Comm comm_;
  std::optional<Messenger> messenger_;
  std::vector<std::byte> staging_;
  std::vector<const std::byte*> sources_;
};

}  // namespace

std::size_t mpi_staging_bytes(int ranks) {
  return ranks < 2 ? 0 : kDepth * static_cast<std::size_t>(ranks - 1) * slot_bytes(ranks);
}

int run_mpi(const Launch& launch, const std::function<int(Communicator&)>& body, const JobOptions& options) {
  const auto session = std::make_shared<MpiSession>(launch);
  MPI_Comm world = MPI_COMM_NULL;
  int rank = 0, size = 0;
  session->call("MPI_Comm_dup", [&] { return MPI_Comm_dup(MPI_COMM_WORLD, &world); });
  session->call("MPI_Comm_rank", [&] { return MPI_Comm_rank(world, &rank); });
  session->call("MPI_Comm_size", [&] { return MPI_Comm_size(world, &size); });
  try {
    MpiCommunicator communicator(session, world, rank, size);
    communicator.set_time_limit(options.time_limit);
    std::int32_t code = body(communicator);
    communicator.all_reduce(std::span(&code, 1), Reduction::max, "exit codes");
    return code;
  } catch (const std::exception& error) {
    abort_job(size > 1 ? fmt::format("rank {}: {}", rank, error.what()) : error.what());
  }
}

}  // namespace heddle
