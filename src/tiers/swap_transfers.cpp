#include "tiers/swap_transfers.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace heddle {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::size_t kMostBlockBytes = std::size_t{1} << 30;  // one call moves less than 2 GiB

bool overlap(std::uint64_t a, std::uint64_t a_bytes, std::uint64_t b, std::uint64_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

bool overlap(const std::byte* a, std::size_t a_bytes, const std::byte* b, std::size_t b_bytes) {
  if (a == nullptr || b == nullptr) return false;
  return overlap(reinterpret_cast<std::uintptr_t>(a), a_bytes, reinterpret_cast<std::uintptr_t>(b), b_bytes);
}

/// In whole pages: one half of a page may go past the page cache, and the other through it.
bool pages_overlap(std::uint64_t a, std::uint64_t a_bytes, std::uint64_t b, std::uint64_t b_bytes) {
  const auto page = [](std::uint64_t offset) { return offset / kPage; };
  return page(a) <= page(b + b_bytes - 1) && page(b) <= page(a + a_bytes - 1);
}

}  // namespace

SwapTransfers::SwapTransfers(const SwapFile& file, const TransferOptions& options)
    : SwapTransfers(file, options, file.bytes() == 0 ? nullptr : make_block_queue(options.queue, options.queue_depth)) {
}

SwapTransfers::SwapTransfers(const SwapFile& file, const TransferOptions& options, std::unique_ptr<BlockQueue> queue)
    : file_(file), options_(options), queue_(std::move(queue)), slots_(static_cast<std::size_t>(options.queue_depth)) {
  HEDDLE_CHECK(options.block_size > 0 && options.queue_depth > 0);
  options_.block_size = std::min(options_.block_size, kMostBlockBytes);
  if (options_.block_size > kPage) options_.block_size -= options_.block_size % kPage;
  pending_.reserve(slots_.size());
}

SwapTransfers::~SwapTransfers() { abandon(); }

void SwapTransfers::read(std::uint64_t offset, std::span<std::byte> target) {
  start(false, offset, target.data(), target.size());
}

void SwapTransfers::write(std::uint64_t offset, std::span<const std::byte> source) {
  start(true, offset, const_cast<std::byte*>(source.data()), source.size());
}

void SwapTransfers::start(bool is_write, std::uint64_t offset, std::byte* memory, std::size_t bytes) {
  HEDDLE_CHECK(offset + bytes <= file_.bytes());
  while (bytes > 0) {
    const std::size_t count = std::min(bytes, options_.block_size);
    wait_for_conflicts(is_write, offset, count, is_write ? memory : nullptr, is_write ? nullptr : memory, count);
    const std::uint32_t tag = take_slot();
    Slot& slot = slots_[tag];
    slot = {false, number_, {-1, is_write, memory, count, offset, tag}};
    ++under_way_;
    submit(slot);
    memory += count;
    offset += count;
    bytes -= count;
  }
  flush();
}

void SwapTransfers::copy(const std::byte* from, std::byte* to, std::size_t bytes) {
  wait_for_conflicts(false, 0, 0, from, to, bytes);
  std::memcpy(to, from, bytes);
}

void SwapTransfers::wait_for_conflicts(bool writes_file, std::uint64_t offset, std::size_t file_bytes,
                                       const std::byte* read_memory, const std::byte* written_memory,
                                       std::size_t bytes) {
  const auto conflicts = [&](const Slot& slot) {
    if (slot.is_free) return false;
    const Block& other = slot.block;
    if ((writes_file || other.is_write) && file_bytes > 0 &&
        pages_overlap(offset, file_bytes, other.offset, other.bytes))
      return true;
    return overlap(written_memory, bytes, other.memory, other.bytes) ||
           (!other.is_write && overlap(read_memory, bytes, other.memory, other.bytes));
  };
  while (under_way_ > 0 && std::any_of(slots_.begin(), slots_.end(), conflicts)) advance();
}

std::uint32_t SwapTransfers::take_slot() {
  if (under_way_ == slots_.size() && !options_.overlap_events) finish();
  while (under_way_ == slots_.size()) advance();  // a short call is continued in its slot
  const auto free = std::find_if(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.is_free; });
  return static_cast<std::uint32_t>(free - slots_.begin());
}

void SwapTransfers::submit(const Slot& slot) {
  Block block = slot.block;
  block.file = file_.descriptor(block.offset, block.memory, block.bytes);
  pending_.push_back(block);
  if (options_.single_submit) flush();
}

void SwapTransfers::flush() {
  if (pending_.empty()) return;
  queue_->submit(pending_);
  pending_.clear();
}

void SwapTransfers::advance() {
  flush();
  if (under_way_ > 0) settle(queue_->wait());
}

void SwapTransfers::finish() {
  while (under_way_ > 0) advance();
}

void SwapTransfers::abandon() noexcept {
  while (under_way_ > 0) {
    const std::size_t before = under_way_;
    try {
      advance();
    } catch (const std::exception&) {  // the first failure was told
      if (under_way_ < before) continue;
      queue_.reset();  // it is the queue that fails: its end is the end of all calls
      under_way_ = 0;
    }
  }
}

void SwapTransfers::settle(const Completion& completion) {
  Slot& slot = slots_[completion.tag];
  Block& left = slot.block;
  const auto moved = static_cast<std::size_t>(std::max<std::int64_t>(completion.result, 0));
  const bool is_to_repeat = completion.result == -EINTR || completion.result == -EAGAIN;
  if (is_to_repeat || (moved > 0 && moved < left.bytes)) {
    left.memory += moved;
    left.offset += moved;
    left.bytes -= moved;
    return submit(slot);
  }
  slot.is_free = true;
  --under_way_;
  if (moved > 0) return;
  if (left.is_write) {
    fail("nvme_path: {}: {} bytes at {} cannot be written: {}; {} bytes are free", file_.folder().string(), left.bytes,
         left.offset, std::strerror(completion.result == 0 ? ENOSPC : static_cast<int>(-completion.result)),
         file_.free_bytes());
  }
  fail("nvme_path: {}: {} bytes at {} cannot be read: {}", file_.folder().string(), left.bytes, left.offset,
       completion.result == 0 ? "the file ends before them" : std::strerror(static_cast<int>(-completion.result)));
}

std::uint64_t SwapTransfers::first_under_way() const {
  std::uint64_t first = number_ + 1;
  for (const Slot& slot : slots_) {
    if (!slot.is_free) first = std::min(first, slot.number);
  }
  return first;
}

}  // namespace heddle
