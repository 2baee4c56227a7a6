#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

class ThreadGroup;

/// What all groups of one job of threads share: which ranks have ended, and the first failure. Ranks here are the
/// job's.
class ThreadJob {
 public:
  explicit ThreadJob(int ranks) : has_ended_(static_cast<std::size_t>(ranks)) {}

  /// Only the first failure counts: those that follow come of it. Wakes all who wait.
  void fail_with(int rank, std::exception_ptr failure, const std::string& text);
  /// The rank makes no more calls. Wakes all who wait for it.
  void end(int rank);

  bool has_ended(int rank) const { return has_ended_[static_cast<std::size_t>(rank)].load(); }
  /// "rank 2 failed: TEXT", once there is a failure.
  std::optional<std::string> failure_text() const;
  /// The first failure and its rank; null if there is none.
  std::pair<std::exception_ptr, int> failure() const;

  /// Waits until all ranks have ended. Once a rank has failed, the others have `grace` to do so.
  bool wait_for_ranks(std::chrono::milliseconds grace);
  std::vector<int> running_ranks() const;

  void enroll(const std::shared_ptr<ThreadGroup>& group);

 private:
  void wake_groups();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::atomic<bool>> has_ended_;
  std::exception_ptr failure_;
  std::string failure_text_;
  int failed_rank_ = -1;
  std::atomic<bool> has_failed_{false};
  std::vector<std::weak_ptr<ThreadGroup>> groups_;
};

/// How long to wait, and for what; the text goes into errors.
struct Patience {
  std::string call;  ///< "all_gather (embedding)"
  std::chrono::milliseconds limit;
};

/// A message that waits for its receiver; it stays with the sender.
struct ThreadMessage {
  int from, to, tag;
  std::span<const std::byte> bytes;
  enum class State { posted, claimed, taken, refused } state = State::posted;
  std::string refusal;
};

/// Where the threads of one group meet. In a collective call each rank posts what it brings, all meet at the opening,
/// work on each other's memory, and meet again at the closing, after which their memory is their own again. Who fails,
/// fails before the opening is complete: what lies between cannot fail, so no memory goes away under a reader.
class ThreadGroup {
 public:
  /// `job_ranks[i]` is the job's number of the group's rank i.
  ThreadGroup(std::shared_ptr<ThreadJob> job, std::vector<int> job_ranks);

  /// Posts `call` (which stays valid until close) and waits for all ranks' posts. The last to come calls
  /// check(posts); the text that it returns, if any, is thrown as Error on all ranks.
  using Check = std::string (*)(std::span<const void* const> posts, const ThreadGroup& group);
  std::span<const void* const> open(int rank, const void* call, Check check, const Patience& patience);
  void close();

  /// Sends `out` and receives `in`; either may be absent (rank -1).
  void pass(int rank, std::span<const std::byte> out, int to, std::span<std::byte> in, int from, int tag,
            const Patience& patience);

  /// A group of these ranks of this one; all of them get the same one. Called between open and close, once for each
  /// group, by its first rank.
  std::shared_ptr<ThreadGroup> make_subgroup(std::span<const int> ranks) const;

  int size() const { return static_cast<int>(job_ranks_.size()); }
  int job_rank(int rank) const { return job_ranks_[static_cast<std::size_t>(rank)]; }
  void wake();

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Clock = std::chrono::steady_clock;
  /// Waits until done(); throws Error where another rank has failed or ended, or the time is over. `awaited` lists the
  /// ranks that are missing.
  void wait(Lock& lock, const Patience& patience, const std::function<bool()>& done,
            const std::function<std::vector<int>()>& awaited);
  void check_intact(const Patience& patience);
  /// Throws the text, now and in all later calls: posts of ranks that have left must never be read.
  [[noreturn]] void give_up(const std::string& text);
  std::vector<int> absent_ranks() const;
  std::list<ThreadMessage>::iterator find_message(int from, int to, int tag);
  void take_message(Lock& lock, int rank, std::span<std::byte> in, int from, int tag, const Patience& patience);
  void await_receiver(Lock& lock, std::list<ThreadMessage>::iterator message, const Patience& patience);

  std::shared_ptr<ThreadJob> job_;
  std::vector<int> job_ranks_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<const void*> posts_;  // of the call that is open; null where a rank has not come
  int opened_ = 0, closed_ = 0;     // ranks that have come to either meeting
  std::atomic<std::uint64_t> openings_{0}, closings_{0};
  std::string mismatch_;  // what check said of the call that is open
  std::list<ThreadMessage> messages_;
  std::string given_up_;  // why there is no more to come; "" while all is well
};

}  // namespace heddle
