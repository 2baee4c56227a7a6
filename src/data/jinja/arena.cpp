#include "data/jinja/arena.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/text.h"

namespace heddle::jinja {

void* Arena::allocate_block(std::size_t bytes) {
  const std::size_t rounded = round_up(bytes);
  if (rounded < bytes || rounded > max_bytes_ - std::min(used_, max_bytes_)) {
    fail("the template needs more than {} of memory", format_bytes(max_bytes_));
  }
  const std::size_t size = std::max(rounded, next_block_);
  used_ += size;
  next_block_ = std::min(2 * next_block_, std::size_t{1} << 20);
  blocks_.push_back(std::unique_ptr<std::byte[]>(new std::byte[size]));  // not initialized
  at_ = blocks_.back().get() + rounded;
  end_ = blocks_.back().get() + size;
  return blocks_.back().get();
}

std::string_view Arena::copy(std::string_view text) {
  if (text.empty()) return {};
  char* target = allocate_text(text.size());
  std::memcpy(target, text.data(), text.size());
  return {target, text.size()};
}

std::string_view Arena::concatenate(std::string_view left, std::string_view right) {
  if (right.empty()) return left;
  if (left.empty()) return right;
  const char* left_end = left.data() + left.size();
  const char* used_end = reinterpret_cast<const char*>(at_);
  // Whatever is allocated later moves `at_` by kAlignment at least: `left` is still the last, and nobody else grew it.
  const bool is_last = last_text_ == left_end && left_end <= used_end && left_end + kAlignment > used_end;
  if (is_last && right.size() <= static_cast<std::size_t>(reinterpret_cast<const char*>(end_) - left_end)) {
    std::memcpy(const_cast<char*>(left_end), right.data(), right.size());
    last_text_ = left_end + right.size();
    if (last_text_ > used_end) at_ += round_up(static_cast<std::size_t>(last_text_ - used_end));
    return {left.data(), left.size() + right.size()};
  }
  const std::size_t size = left.size() + right.size();
  char* target = allocate_text(is_last ? size + left.size() : size);  // room to grow in
  at_ = reinterpret_cast<std::byte*>(target) + round_up(size);
  std::memcpy(target, left.data(), left.size());
  std::memcpy(target + left.size(), right.data(), right.size());
  last_text_ = target + size;
  return {target, size};
}

}  // namespace heddle::jinja
