#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "tiers/block_queue.h"

namespace heddle {
namespace {

constexpr int kMostThreads = 16;

/// A queue of fixed room.
template <typename T>
class Ring {
 public:
  explicit Ring(int room) : entries_(static_cast<std::size_t>(room)) {}
  bool empty() const { return first_ == end_; }
  void push(const T& entry) { entries_[end_++ % entries_.size()] = entry; }
  T pop() { return entries_[first_++ % entries_.size()]; }

 private:
  std::vector<T> entries_;
  std::size_t first_ = 0, end_ = 0;
};

class ThreadQueue : public BlockQueue {
 public:
  explicit ThreadQueue(int depth) : waiting_(depth), done_(depth) {
    for (int i = 0; i < std::min(depth, kMostThreads); ++i) threads_.emplace_back([this] { serve(); });
  }
  ~ThreadQueue() override {
    {
      const std::lock_guard lock(mutex_);
      stops_ = true;
    }
    has_block_.notify_all();
    for (auto& thread : threads_) thread.join();
  }
  ThreadQueue(const ThreadQueue&) = delete;
  ThreadQueue& operator=(const ThreadQueue&) = delete;

  void submit(std::span<const Block> blocks) override {
    {
      const std::lock_guard lock(mutex_);
      for (const Block& block : blocks) waiting_.push(block);
    }
    for (std::size_t i = 0; i < blocks.size(); ++i) has_block_.notify_one();
  }

  Completion wait() override {
    std::unique_lock lock(mutex_);
    has_completion_.wait(lock, [this] { return !done_.empty(); });
    return done_.pop();
  }

  std::string_view name() const override { return "threads"; }

 private:
  static std::int64_t move(const Block& block) {
    const auto offset = static_cast<off_t>(block.offset);
    const ssize_t moved = block.is_write ? pwrite(block.file, block.memory, block.bytes, offset)
                                         : pread(block.file, block.memory, block.bytes, offset);
    return moved < 0 ? -errno : moved;
  }

  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      has_block_.wait(lock, [this] { return stops_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      const Block block = waiting_.pop();
      lock.unlock();
      const std::int64_t result = move(block);
      lock.lock();
      done_.push({block.tag, result});
      has_completion_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable has_block_, has_completion_;
  Ring<Block> waiting_;
  Ring<Completion> done_;
  bool stops_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<BlockQueue> make_thread_queue(int depth) { return std::make_unique<ThreadQueue>(depth); }

}  // namespace heddle
