#include "train/movement_queue.h"

#include <cstring>

#include "base/threads.h"

namespace heddle {

namespace {

class CollectiveMover : public Mover {
 public:
  explicit CollectiveMover(Communicator& communicator) : communicator_(communicator) {}

  void start(const BoundMovement& movement, const Scalars& scalars) override {
    if (!movement.gathered.empty()) communicator_.all_gather(movement.gathered, movement.what);
    if (movement.reduced.empty()) return;
    ScatterOptions options;
    options.order = movement.order;
    options.add = movement.accumulate == Accumulate::add ||
                  (movement.accumulate == Accumulate::add_after_first && !scalars.first_micro_batch);
    options.active = movement.takes_all_ranks ? communicator_.size() : scalars.active_ranks;
    communicator_.reduce_scatter(movement.reduced, options, movement.what);
  }

 private:
  Communicator& communicator_;
};

class TransferMover : public Mover {
 public:
  TransferMover(const SwapFile& swap, const TransferOptions& options) : transfers_(swap, options) {}

  void start(const BoundMovement& movement, const Scalars&) override {
    transfers_.begin(++started_);
    for (const auto& piece : movement.transferred) {
      if (piece.from == nullptr) {
        transfers_.read(piece.offset, {piece.to, piece.bytes});
      } else if (piece.to == nullptr) {
        transfers_.write(piece.offset, {piece.from, piece.bytes});
      } else {
        transfers_.copy(piece.from, piece.to, piece.bytes);
      }
    }
  }
  std::uint64_t unfinished() const override { return started_ + 1 - transfers_.first_under_way(); }
  void advance() override { transfers_.advance(); }
  void abandon() noexcept override { transfers_.abandon(); }

 private:
  SwapTransfers transfers_;
  std::uint64_t started_ = 0;
};

}  // namespace

std::unique_ptr<Mover> make_collective_mover(Communicator& communicator) {
  return std::make_unique<CollectiveMover>(communicator);
}

std::unique_ptr<Mover> make_transfer_mover(const SwapFile& swap, const TransferOptions& options) {
  return std::make_unique<TransferMover>(swap, options);
}

MovementQueue::MovementQueue(std::unique_ptr<Mover> mover)
    : mover_(std::move(mover)), entries_(256), thread_([this] { serve(); }) {}

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

std::uint64_t MovementQueue::move(const Entry* entry) {
  if (has_failed_) return 0;
  if (entry != nullptr) {
    mover_->start(*entry->movement, entry->scalars);
  } else {
    mover_->advance();
  }
  return mover_->unfinished();
}

void MovementQueue::serve() {
  set_threads(1);  // the cores are the compute queue's
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stops_ || done_ < started_; });
    if (done_ == started_) return;
    const bool is_new = moving_ < started_;
    const Entry entry = entries_[moving_ % entries_.size()];
    lock.unlock();
    std::uint64_t unfinished = 0;
    std::exception_ptr failure;
    try {
      unfinished = move(is_new ? &entry : nullptr);
    } catch (...) {
      failure = std::current_exception();
      has_failed_ = true;
      mover_->abandon();
    }
    lock.lock();
    if (is_new) ++moving_;
    if (failure) failure_ = failure;
    if (const std::uint64_t done = moving_ - unfinished; done != done_) {
      done_ = done;
      changed_.notify_all();
    }
  }
}

}  // namespace heddle
