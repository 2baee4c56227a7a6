#include "comm/thread_group.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace heddle {
namespace {

/// Some tens of microseconds, as in base/threads.cpp: enough where all ranks have a core and come together.
constexpr int kPausesBeforeSleep = 1000;

void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void spin_while_equal(const std::atomic<std::uint64_t>& value, std::uint64_t seen) {
  for (int pauses = 0; pauses < kPausesBeforeSleep && value.load(std::memory_order_relaxed) == seen; ++pauses) {
    pause_core();
  }
}

std::string list_ranks(std::span<const int> ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

}  // namespace

// ---- The job ----

void ThreadJob::fail_with(int rank, std::exception_ptr failure, const std::string& text) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = std::move(failure);
    failure_text_ = fmt::format("rank {} failed: {}", rank, text);
    failed_rank_ = rank;
    has_failed_ = true;
  }
  changed_.notify_all();
  wake_groups();
}

void ThreadJob::end(int rank) {
  {
    const std::lock_guard lock(mutex_);
    has_ended_[static_cast<std::size_t>(rank)] = true;
  }
  changed_.notify_all();
  wake_groups();
}

std::optional<std::string> ThreadJob::failure_text() const {
  if (!has_failed_) return std::nullopt;
  const std::lock_guard lock(mutex_);
  return failure_text_;
}

std::pair<std::exception_ptr, int> ThreadJob::failure() const {
  const std::lock_guard lock(mutex_);
  return {failure_, failed_rank_};
}

std::vector<int> ThreadJob::running_ranks() const {
  std::vector<int> running;
  for (std::size_t r = 0; r < has_ended_.size(); ++r) {
    if (!has_ended_[r]) running.push_back(static_cast<int>(r));
  }
  return running;
}

bool ThreadJob::wait_for_ranks(std::chrono::milliseconds grace) {
  std::unique_lock lock(mutex_);
  const auto all_ended = [&] { return running_ranks().empty(); };
  changed_.wait(lock, [&] { return failure_ || all_ended(); });
  return changed_.wait_for(lock, grace, all_ended);
}

void ThreadJob::enroll(const std::shared_ptr<ThreadGroup>& group) {
  const std::lock_guard lock(mutex_);
  std::erase_if(groups_, [](const auto& known) { return known.expired(); });
  groups_.push_back(group);
}

void ThreadJob::wake_groups() {
  std::vector<std::weak_ptr<ThreadGroup>> groups;
  {
    const std::lock_guard lock(mutex_);
    groups = groups_;
  }
  for (const auto& known : groups) {
    if (const auto group = known.lock()) group->wake();
  }
}

// ---- The group ----

ThreadGroup::ThreadGroup(std::shared_ptr<ThreadJob> job, std::vector<int> job_ranks)
    : job_(std::move(job)), job_ranks_(std::move(job_ranks)), posts_(job_ranks_.size()) {}

void ThreadGroup::wake() {
  // Who is about to sleep holds the mutex from its last look until it sleeps.
  { const std::lock_guard lock(mutex_); }
  changed_.notify_all();
}

void ThreadGroup::wait(Lock& lock, const Patience& patience, const std::function<bool()>& done,
                       const std::function<std::vector<int>()>& awaited) {
  const auto until = Clock::now() + patience.limit;
  bool is_late = false;
  while (!done()) {
    check_intact(patience);
    const std::vector<int> missing = awaited();
    for (const int rank : missing) {
      if (job_->has_ended(rank)) give_up(fmt::format("{} waits for rank {}, which has ended", patience.call, rank));
    }
    if (is_late) {
      give_up(fmt::format("{} waited {} s for {}", patience.call, std::chrono::duration<double>(patience.limit).count(),
                          list_ranks(missing)));
    }
    is_late = changed_.wait_until(lock, until) == std::cv_status::timeout;
  }
}

void ThreadGroup::check_intact(const Patience& patience) {
  if (const auto failure = job_->failure_text()) give_up(fmt::format("{}: {}", patience.call, *failure));
  if (!given_up_.empty()) fail("{}", given_up_);
}

void ThreadGroup::give_up(const std::string& text) {
  if (given_up_.empty()) {
    given_up_ = text;
    changed_.notify_all();
  }
  fail("{}", text);
}

std::vector<int> ThreadGroup::absent_ranks() const {
  std::vector<int> absent;
  for (std::size_t r = 0; r < posts_.size(); ++r) {
    if (posts_[r] == nullptr) absent.push_back(job_ranks_[r]);
  }
  return absent;
}

std::span<const void* const> ThreadGroup::open(int rank, const void* call, Check check, const Patience& patience) {
  Lock lock(mutex_);
  check_intact(patience);
  const std::uint64_t seen = openings_.load(std::memory_order_relaxed);
  posts_[static_cast<std::size_t>(rank)] = call;
  if (++opened_ == size()) {
    mismatch_ = check(posts_, *this);
    opened_ = 0;
    openings_.store(seen + 1, std::memory_order_release);
    changed_.notify_all();
  } else {
    lock.unlock();
    spin_while_equal(openings_, seen);
    lock.lock();
    wait(
        lock, patience, [&] { return openings_.load(std::memory_order_relaxed) != seen; },
        [&] { return absent_ranks(); });
  }
  if (!mismatch_.empty()) fail("{}", mismatch_);
  return posts_;
}

void ThreadGroup::close() {
  Lock lock(mutex_);
  const std::uint64_t seen = closings_.load(std::memory_order_relaxed);
  if (++closed_ == size()) {
    closed_ = 0;
    std::fill(posts_.begin(), posts_.end(), nullptr);
    closings_.store(seen + 1, std::memory_order_release);
    changed_.notify_all();
    return;
  }
  lock.unlock();
  spin_while_equal(closings_, seen);
  lock.lock();
  // The others are copying: they come, whatever happens elsewhere.
  changed_.wait(lock, [&] { return closings_.load(std::memory_order_relaxed) != seen; });
}

std::list<ThreadMessage>::iterator ThreadGroup::find_message(int from, int to, int tag) {
  return std::find_if(messages_.begin(), messages_.end(), [&](const ThreadMessage& message) {
    return message.from == from && message.to == to && message.tag == tag &&
           message.state == ThreadMessage::State::posted;
  });
}

void ThreadGroup::take_message(Lock& lock, int rank, std::span<std::byte> in, int from, int tag,
                               const Patience& patience) {
  auto message = messages_.end();
  wait(
      lock, patience, [&] { return (message = find_message(from, rank, tag)) != messages_.end(); },
      [&] { return std::vector<int>{job_rank(from)}; });
  if (message->bytes.size() != in.size()) {
    message->state = ThreadMessage::State::refused;
    message->refusal = fmt::format("rank {} sends {} bytes with tag {}, rank {} expects {}", job_rank(from),
                                   message->bytes.size(), tag, job_rank(rank), in.size());
    const std::string refusal = message->refusal;
    changed_.notify_all();
    fail("{}: {}", patience.call, refusal);
  }
  message->state = ThreadMessage::State::claimed;
  lock.unlock();
  std::memcpy(in.data(), message->bytes.data(), in.size());
  lock.lock();
  message->state = ThreadMessage::State::taken;
  changed_.notify_all();
}

void ThreadGroup::await_receiver(Lock& lock, std::list<ThreadMessage>::iterator message, const Patience& patience) {
  using State = ThreadMessage::State;
  try {
    wait(
        lock, patience, [&] { return message->state != State::posted; },
        [&] { return std::vector<int>{job_rank(message->to)}; });
  } catch (...) {
    messages_.erase(message);
    throw;
  }
  changed_.wait(lock, [&] { return message->state != State::claimed; });
  const std::string refusal = message->refusal;
  messages_.erase(message);
  if (!refusal.empty()) fail("{}: {}", patience.call, refusal);
}

void ThreadGroup::pass(int rank, std::span<const std::byte> out, int to, std::span<std::byte> in, int from, int tag,
                       const Patience& patience) {
  Lock lock(mutex_);
  auto posted = messages_.end();
  if (to >= 0) {
    posted = messages_.insert(messages_.end(), ThreadMessage{rank, to, tag, out, ThreadMessage::State::posted, {}});
    changed_.notify_all();
  }
  if (from >= 0) {
    try {
      take_message(lock, rank, in, from, tag, patience);
    } catch (...) {
      if (posted != messages_.end()) {
        changed_.wait(lock, [&] { return posted->state != ThreadMessage::State::claimed; });
        messages_.erase(posted);
      }
      throw;
    }
  }
  if (posted != messages_.end()) await_receiver(lock, posted, patience);
}

std::shared_ptr<ThreadGroup> ThreadGroup::make_subgroup(std::span<const int> ranks) const {
  std::vector<int> job_ranks;
  job_ranks.reserve(ranks.size());
  for (const int rank : ranks) job_ranks.push_back(job_rank(rank));
  auto group = std::make_shared<ThreadGroup>(job_, std::move(job_ranks));
  job_->enroll(group);
  return group;
}

}  // namespace heddle
