#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/checked_file.h"

namespace heddle {

/// A file in memory, cut into chunks.
class ChunkedParts {
 public:
  explicit ChunkedParts(FileParts parts) : parts_(parts) {
    for (const auto& part : parts) begins_.push_back(begins_.back() + part.size());
  }
  std::uint64_t bytes() const { return begins_.back(); }
  std::uint64_t begin(std::int64_t chunk) const { return static_cast<std::uint64_t>(chunk) * kChunkBytes; }
  std::uint64_t end(std::int64_t chunk) const { return std::min(begin(chunk) + kChunkBytes, bytes()); }

  /// Calls use(bytes) for what the bytes [begin, end) of the file are made of, one after another.
  template <typename Use>
  void visit(std::uint64_t begin, std::uint64_t end, Use&& use) const {
    auto part = static_cast<std::size_t>(std::upper_bound(begins_.begin(), begins_.end(), begin) - begins_.begin()) - 1;
    for (std::uint64_t at = begin; at < end; ++part) {
      const auto piece = parts_[part].subspan(at - begins_[part], std::min(begins_[part + 1], end) - at);
      use(piece);
      at += piece.size();
    }
  }

 private:
  FileParts parts_;
  std::vector<std::uint64_t> begins_ = {0};  // of the parts, in the file
};

}  // namespace heddle
