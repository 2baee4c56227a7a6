#include "train/movement_queue.h"

#include <cstring>

#include "base/threads.h"

namespace heddle {

void communicate(const BoundMovement& movement, const Scalars& scalars, Communicator& communicator) {
  if (!movement.gathered.empty()) communicator.all_gather(movement.gathered, movement.what);
  if (movement.reduced.empty()) return;
  ScatterOptions options;
  options.order = movement.order;
  options.add = movement.accumulate == Accumulate::add ||
                (movement.accumulate == Accumulate::add_after_first && !scalars.first_micro_batch);
  options.active = movement.takes_all_ranks ? communicator.size() : scalars.active_ranks;
  communicator.reduce_scatter(movement.reduced, options, movement.what);
}

void transfer(const BoundMovement& movement, SwapFile& swap) {
  for (const auto& piece : movement.transferred) {
    if (piece.from == nullptr) {
      swap.read(piece.offset, {piece.to, piece.bytes});
    } else if (piece.to == nullptr) {
      swap.write(piece.offset, {piece.from, piece.bytes});
    } else {
      std::memcpy(piece.to, piece.from, piece.bytes);
    }
  }
}

MovementQueue::MovementQueue(Move move) : move_(std::move(move)), entries_(256), thread_([this] { serve(); }) {}

MovementQueue::~MovementQueue() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::uint64_t MovementQueue::start(const BoundMovement& movement, const Scalars& scalars) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return started_ - done_ < entries_.size(); });
  entries_[started_ % entries_.size()] = {&movement, scalars};
  const std::uint64_t ticket = ++started_;
  lock.unlock();
  changed_.notify_all();
  return ticket;
}

void MovementQueue::wait(std::uint64_t ticket) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= ticket; });
  if (failure_) std::rethrow_exception(failure_);
}

void MovementQueue::serve() {
  set_threads(1);  // the cores are the compute queue's
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stops_ || done_ < started_; });
    if (done_ == started_) return;
    const Entry entry = entries_[done_ % entries_.size()];
    const bool has_failed = failure_ != nullptr;
    lock.unlock();
    std::exception_ptr failure;
    if (!has_failed) {
      try {
        move_(*entry.movement, entry.scalars);
      } catch (...) {
        failure = std::current_exception();
      }
    }
    lock.lock();
    if (failure) failure_ = failure;
    ++done_;
    changed_.notify_all();
  }
}

}  // namespace heddle
