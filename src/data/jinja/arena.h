#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace heddle::jinja {

/// The memory of one rendering: allocated piece by piece, given back as a whole. So values need no owner, and what a
/// template can take is bounded.
class Arena {
 public:
  explicit Arena(std::size_t max_bytes) : max_bytes_(max_bytes) {  // the first block is not cleared
    at_ = first_.data();
    end_ = at_ + first_.size();
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Aligned for any type. Throws Error beyond the bound.
  void* allocate(std::size_t bytes) {
    const std::size_t rounded = round_up(bytes);
    if (rounded < bytes || rounded > static_cast<std::size_t>(end_ - at_)) return allocate_block(bytes);
    void* result = at_;
    at_ += rounded;
    return result;
  }
  char* allocate_text(std::size_t bytes) { return static_cast<char*>(allocate(bytes)); }
  std::string_view copy(std::string_view text);
  /// `left` and then `right`. Where `left` is what was allocated last, it grows in place: a text that is added to again
  /// and again is not copied each time.
  std::string_view concatenate(std::string_view left, std::string_view right);

  template <typename T, typename... Args>
  T* make(Args&&... args) {
    static_assert(std::is_trivially_destructible_v<T>, "nothing is destroyed");
    static_assert(alignof(T) <= kAlignment);
    return new (allocate(sizeof(T))) T{std::forward<Args>(args)...};
  }
  template <typename T>
  std::span<T> copy(std::span<const T> items) {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= kAlignment);
    if (items.empty()) return {};
    auto* target = static_cast<T*>(allocate(items.size() * sizeof(T)));
    std::uninitialized_copy(items.begin(), items.end(), target);
    return {target, items.size()};
  }

 private:
  static constexpr std::size_t kAlignment = 16;
  static std::size_t round_up(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }
  void* allocate_block(std::size_t bytes);

  std::size_t max_bytes_, used_ = 0, next_block_ = std::size_t{32} << 10;
  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  alignas(kAlignment) std::array<std::byte, 8192> first_;
  std::byte *at_ = nullptr, *end_ = nullptr;
  const char* last_text_ = nullptr;  // end of the last concatenation
};

}  // namespace heddle::jinja
