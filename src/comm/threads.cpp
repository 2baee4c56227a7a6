// Ranks that are threads of one process. Nothing is staged: between an opening and a closing of their group the ranks
// read each other's memory, and each adds up what it owns.
#include <algorithm>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/cores.h"
#include "base/error.h"
#include "comm/fold.h"
#include "comm/job.h"
#include "comm/thread_group.h"

namespace heddle {
namespace {

/// Values are dealt to their owners by cache lines, so that no two ranks write the same one.
constexpr std::size_t kLine = 64;
/// Bytes that an owner adds up before it hands them out, small enough for its second-level cache.
constexpr std::size_t kBlock = 32 * 1024;

/// What a rank brings to a collective call; the members of its kind are set.
struct Post {
  Collective kind;
  std::string name;  ///< for messages
  std::span<const GatherPiece> gather;
  std::span<const ScatterPiece> scatter;
  ScatterOptions options;
  std::span<const ReducePiece> reduce;
  Reduction reduction = Reduction::sum;
  std::span<const std::span<std::byte>> spread;
  int root = -1;
  std::span<const std::span<const std::byte>> out;
  std::span<const std::span<std::byte>> in;
  int color = -1, key = 0;
  std::shared_ptr<ThreadGroup> subgroup;  ///< result of a split, set by the first rank of it
};

const Post& post_of(std::span<const void* const> posts, int rank) {
  return *static_cast<const Post*>(posts[static_cast<std::size_t>(rank)]);
}

/// What all ranks must agree on, as text: "all_gather (embedding): 2 tensors of 64, 128 bytes".
std::string signature(const Post& post) {
  std::vector<std::string> tensors;
  for (const auto& piece : post.gather) tensors.push_back(fmt::format("{}", piece.mine.size()));
  for (const auto& piece : post.scatter) {
    tensors.push_back(fmt::format("{} {}", piece.target.size(), torch_name(piece.dtype)));
  }
  for (const auto& piece : post.reduce) {
    tensors.push_back(fmt::format("{} {}", piece.values.size(), torch_name(piece.dtype)));
  }
  for (const auto& piece : post.spread) tensors.push_back(fmt::format("{}", piece.size()));
  std::string text = post.name;
  if (!tensors.empty()) text += fmt::format(" of {} bytes", fmt::join(tensors, ", "));
  if (post.kind == Collective::reduce_scatter) {
    text += fmt::format(", {} ranks active{}", post.options.active, post.options.add ? ", added" : "");
  }
  if (post.kind == Collective::all_reduce) text += post.reduction == Reduction::sum ? ", sum" : ", maximum";
  if (post.kind == Collective::broadcast) text += fmt::format(" from rank {}", post.root);
  return text;
}

bool agree(const Post& a, const Post& b) {
  return a.kind == b.kind && a.root == b.root && a.options.add == b.options.add &&
         a.options.active == b.options.active && a.reduction == b.reduction &&
         std::equal(a.gather.begin(), a.gather.end(), b.gather.begin(), b.gather.end(),
                    [](const auto& x, const auto& y) { return x.mine.size() == y.mine.size(); }) &&
         std::equal(
             a.scatter.begin(), a.scatter.end(), b.scatter.begin(), b.scatter.end(),
             [](const auto& x, const auto& y) { return x.target.size() == y.target.size() && x.dtype == y.dtype; }) &&
         std::equal(
             a.reduce.begin(), a.reduce.end(), b.reduce.begin(), b.reduce.end(),
             [](const auto& x, const auto& y) { return x.values.size() == y.values.size() && x.dtype == y.dtype; }) &&
         std::equal(a.spread.begin(), a.spread.end(), b.spread.begin(), b.spread.end(),
                    [](const auto& x, const auto& y) { return x.size() == y.size(); });
}

std::string mismatch(std::span<const void* const> posts, const ThreadGroup& group) {
  const Post& first = post_of(posts, 0);
  for (int r = 1; r < group.size(); ++r) {
    const Post& other = post_of(posts, r);
    if (!agree(first, other)) {
      return fmt::format("ranks do not make the same call: rank {} calls {}; rank {} calls {}", group.job_rank(0),
                         signature(first), group.job_rank(r), signature(other));
    }
  }
  if (first.kind != Collective::all_to_all) return {};
  for (int from = 0; from < group.size(); ++from) {
    for (int to = 0; to < group.size(); ++to) {
      const std::size_t sent = post_of(posts, from).out[static_cast<std::size_t>(to)].size();
      const std::size_t expected = post_of(posts, to).in[static_cast<std::size_t>(from)].size();
      if (sent != expected) {
        return fmt::format("{}: rank {} sends {} bytes to rank {}, which expects {}", first.name, group.job_rank(from),
                           sent, group.job_rank(to), expected);
      }
    }
  }
  return {};
}

class ThreadRank final : public Communicator {
 public:
  ThreadRank(std::shared_ptr<ThreadGroup> group, int rank, int cores, CoreShare share)
      : Communicator(rank, group->size()), group_(std::move(group)) {
    set_host(size(), rank, cores, share);
  }
  std::string_view transport() const override { return "threads"; }
  std::size_t staging_bytes() const override { return 0; }

 private:
  void gather(const Call& call, std::span<const GatherPiece> pieces) override {
    Post post = begin(call);
    post.gather = pieces;
    collective(post, [&](auto posts) {
      for (int step = 0; step < size(); ++step) {  // each starts elsewhere, so that not all read the same memory
        const int from = (rank() + step) % size();
        for (std::size_t t = 0; t < pieces.size(); ++t) {
          const auto theirs = post_of(posts, from).gather[t].mine;
          std::byte* place = pieces[t].all.data() + static_cast<std::size_t>(from) * theirs.size();
          if (!theirs.empty() && theirs.data() != place) std::memcpy(place, theirs.data(), theirs.size());
        }
      }
    });
  }

  void scatter(const Call& call, std::span<const ScatterPiece> pieces, const ScatterOptions& options) override {
    Post post = begin(call);
    post.scatter = pieces;
    post.options = options;
    collective(post, [&](auto posts) {
      std::vector<const std::byte*> sources(static_cast<std::size_t>(options.active));
      for (std::size_t t = 0; t < pieces.size(); ++t) {
        const std::size_t bytes = pieces[t].target.size();
        for (int r = 0; r < options.active; ++r) {
          sources[static_cast<std::size_t>(r)] =
              post_of(posts, r).scatter[t].contribution.data() + static_cast<std::size_t>(rank()) * bytes;
        }
        fold(pieces[t].dtype, Reduction::sum, pieces[t].target.data(), sources,
             options.add ? pieces[t].added_to() : nullptr, bytes);
      }
    });
  }

  void reduce(const Call& call, std::span<const ReducePiece> pieces, Reduction reduction, Order) override {
    Post post = begin(call);
    post.reduce = pieces;
    post.reduction = reduction;
    collective(post, [&](auto posts) {
      // The tensors lie end to end on one line, counted in cache lines, of which each rank owns a stretch.
      std::size_t lines = 0;
      for (const ReducePiece& piece : pieces) lines += (piece.values.size() + kLine - 1) / kLine;
      const std::size_t ranks = static_cast<std::size_t>(size()), place = static_cast<std::size_t>(rank());
      const std::size_t own_begin = lines * place / ranks, own_end = lines * (place + 1) / ranks;
      std::size_t start = 0;
      for (std::size_t t = 0; t < pieces.size(); ++t) {
        const std::size_t bytes = pieces[t].values.size(), tensor_lines = (bytes + kLine - 1) / kLine;
        const std::size_t begin = std::max(own_begin, start), end = std::min(own_end, start + tensor_lines);
        if (begin < end) {
          reduce_stretch(posts, t, (begin - start) * kLine, std::min(bytes, (end - start) * kLine), reduction);
        }
        start += tensor_lines;
      }
    });
  }

  /// Bytes [begin, end) of tensor t, on all ranks.
  void reduce_stretch(std::span<const void* const> posts, std::size_t t, std::size_t begin, std::size_t end,
                      Reduction reduction) const {
    std::vector<const std::byte*> sources(static_cast<std::size_t>(size()));
    for (std::size_t offset = begin; offset < end; offset += kBlock) {
      const std::size_t bytes = std::min(kBlock, end - offset);
      for (int r = 0; r < size(); ++r) {
        sources[static_cast<std::size_t>(r)] = post_of(posts, r).reduce[t].values.data() + offset;
      }
      const ReducePiece& own = post_of(posts, rank()).reduce[t];
      std::byte* result = own.values.data() + offset;
      fold(own.dtype, reduction, result, sources, nullptr, bytes);
      for (int r = 0; r < size(); ++r) {
        if (r != rank()) std::memcpy(post_of(posts, r).reduce[t].values.data() + offset, result, bytes);
      }
    }
  }

  void spread(const Call& call, std::span<const std::span<std::byte>> pieces, int root) override {
    Post post = begin(call);
    post.spread = pieces;
    post.root = root;
    collective(post, [&](auto posts) {
      if (rank() == root) return;
      for (std::size_t t = 0; t < pieces.size(); ++t) {
        const auto source = post_of(posts, root).spread[t];
        if (!source.empty()) std::memcpy(pieces[t].data(), source.data(), source.size());
      }
    });
  }

  void transpose(const Call& call, std::span<const std::span<const std::byte>> out,
                 std::span<const std::span<std::byte>> in) override {
    Post post = begin(call);
    post.out = out;
    post.in = in;
    collective(post, [&](auto posts) {
      for (int step = 1; step < size(); ++step) {
        const int from = (rank() + step) % size();
        const auto source = post_of(posts, from).out[static_cast<std::size_t>(rank())];
        if (!source.empty()) std::memcpy(in[static_cast<std::size_t>(from)].data(), source.data(), source.size());
      }
    });
  }

  void pass(const Call& call, std::span<const std::byte> out, int to, std::span<std::byte> in, int from,
            int tag) override {
    group_->pass(rank(), out, to, in, from, tag, {describe(call), time_limit()});
  }

  void meet(const Call& call) override {
    Post post = begin(call);
    collective(post, [](auto) {});
  }

  std::unique_ptr<Communicator> divide(const Call& call, int color, int key) override {
    Post post = begin(call);
    post.color = color;
    post.key = key;
    std::vector<int> members;
    collective(post, [&](auto posts) {
      if (color < 0) return;
      for (int r = 0; r < size(); ++r) {
        if (post_of(posts, r).color == color) members.push_back(r);
      }
      std::stable_sort(members.begin(), members.end(),
                       [&](int a, int b) { return post_of(posts, a).key < post_of(posts, b).key; });
      if (members.front() == rank()) post.subgroup = group_->make_subgroup(members);
    });
    // A second round hands the new group from its first rank to the others.
    std::shared_ptr<ThreadGroup> subgroup;
    collective(post, [&](auto posts) {
      if (color >= 0) subgroup = post_of(posts, members.front()).subgroup;
    });
    if (!subgroup) return nullptr;
    const auto place = std::find(members.begin(), members.end(), rank()) - members.begin();
    return std::make_unique<ThreadRank>(std::move(subgroup), static_cast<int>(place), cores(), core_share());
  }

  Post begin(const Call& call) const {
    Post post;
    post.kind = call.kind;
    post.name = describe(call);
    return post;
  }

  /// Runs work(posts of all ranks) between the opening and the closing.
  template <typename Work>
  void collective(const Post& post, Work&& work) {
    const auto posts = group_->open(rank(), &post, mismatch, {post.name, time_limit()});
    try {
      work(posts);
    } catch (...) {  // no memory for a list; the others are not to wait for this rank
      group_->close();
      throw;
    }
    group_->close();
  }

  std::shared_ptr<ThreadGroup> group_;
};

constexpr int kMostRanks = 4096;  // threads of one process; far more, and the system kills it

/// Throws the failure again, with the rank in its text.
[[noreturn]] void rethrow(const std::exception_ptr& failure, int rank) {
  try {
    std::rethrow_exception(failure);
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("rank {}: {}", rank, error.what()));
  } catch (const std::exception& error) {
    fail("rank {}: {}", rank, error.what());
  }
}

}  // namespace

int run_ranks(int ranks, const std::function<int(Communicator&)>& body, const JobOptions& options) {
  if (ranks < 1) fail("{} ranks; expected at least 1", ranks);
  if (ranks > kMostRanks) {
    fail("{} ranks in one process; expected at most {}: mpirun or srun start them as processes", ranks, kMostRanks);
  }
  if (ranks == 1) return body(*alone());

  const auto job = std::make_shared<ThreadJob>(ranks);
  std::vector<int> numbers(static_cast<std::size_t>(ranks)), codes(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) numbers[static_cast<std::size_t>(r)] = r;
  const auto group = std::make_shared<ThreadGroup>(job, std::move(numbers));
  job->enroll(group);

  const auto run_rank = [&](int r) {
    try {
      const CoreShare share{r, ranks};
      ThreadRank rank(group, r, std::max(1, share.size(available_cores())), share);
      rank.set_time_limit(options.time_limit);
      codes[static_cast<std::size_t>(r)] = body(rank);
    } catch (const std::exception& error) {
      job->fail_with(r, std::current_exception(), error.what());
    }
    job->end(r);
  };
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    try {
      threads.emplace_back(run_rank, r);
    } catch (const std::system_error& error) {
      job->fail_with(r, std::current_exception(), error.what());
      for (int missing = r; missing < ranks; ++missing) job->end(missing);
      break;
    }
  }
  if (!job->wait_for_ranks(options.grace)) {
    const auto [failure, rank] = job->failure();
    abort_job(fmt::format("{}; no end of ranks {} within {} s", *job->failure_text(),
                          fmt::join(job->running_ranks(), ", "), std::chrono::duration<double>(options.grace).count()));
  }
  for (std::thread& thread : threads) thread.join();
  if (const auto [failure, rank] = job->failure(); failure) rethrow(failure, rank);
  return *std::max_element(codes.begin(), codes.end());
}

}  // namespace heddle
