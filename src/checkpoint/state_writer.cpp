#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "checkpoint/folder.h"
#include "checkpoint/folder_writer.h"
#include "formats/safetensors.h"

namespace heddle {
namespace {

/// A safetensors file of ranges of pieces: of each tensor its ranges one behind the other.
class StateFile {
 public:
  explicit StateFile(std::string name) : name_(std::move(name)) {}
  const std::string& name() const { return name_; }
  std::uint64_t bytes() const { return bytes_; }

  /// Elements of a piece, which begins at `position` among the bytes of all pieces; returns where they lie in the
  /// file's tensor. Ranges come in the order of the pieces and of their elements.
  std::int64_t add(const CheckpointPiece& piece, const Unchanged::Range& range, std::uint64_t position) {
    if (std::exchange(last_, &piece) != &piece) entries_.push_back({piece.name, piece.dtype, {0}});
    const std::size_t size = dtype_bytes(piece.dtype);
    const auto offset = static_cast<std::size_t>(range.begin - piece.begin) * size;
    const auto part = piece.bytes.subspan(offset, static_cast<std::size_t>(range.elements()) * size);
    std::int64_t& elements = entries_.back().shape.front();
    const std::int64_t at = std::exchange(elements, elements + range.elements());
    parts_.push_back(part);
    places_.push_back({bytes_, position + offset});
    bytes_ += part.size();
    if (SavedTensor{piece.dtype, piece.shape, {}}.elements() == elements) entries_.back().shape = piece.shape;
    return at;
  }

  /// `reach(position)`: all that this file holds is read from memory up to there; the end is UINT64_MAX.
  void write(FolderWriter& folder, const SavedMemory& memory, const std::function<void(std::uint64_t)>& reach) {
    if (entries_.empty()) return;
    std::uint64_t data_bytes = 0;
    const std::string header = safetensors_header(name_, entries_, {{"format", "heddle-checkpoint"}}, data_bytes);
    parts_[0] = std::as_bytes(std::span(header));
    const auto on_read = [&](std::uint64_t read) {
      if (memory.snapshot != nullptr && memory.snapshot->is_cancelled()) fail("{}: its run has ended", name_);
      if (read > header.size()) reach(position_of(read - header.size()));
    };
    folder.write_state(name_, parts_, on_read, memory.compresses);
  }

 private:
  struct Place {
    std::uint64_t offset, position;  // among the bytes of this file's ranges, and of all pieces
  };
  /// Where the byte at `offset` lies among all.
  std::uint64_t position_of(std::uint64_t offset) const {
    if (offset == bytes_) return UINT64_MAX;
    const auto next = std::partition_point(places_.begin(), places_.end(),
                                           [&](const Place& place) { return place.offset <= offset; });
    return std::prev(next)->position + offset - std::prev(next)->offset;
  }

  std::string name_;
  const CheckpointPiece* last_ = nullptr;
  std::vector<SafetensorsWriter::Entry> entries_;
  std::vector<std::span<const std::byte>> parts_ = {{}};  // the header's place first
  std::vector<Place> places_;
  std::uint64_t bytes_ = 0;
};

/// Of what is the same but cannot be linked.
std::uint64_t kept_bytes(const Unchanged& unchanged, std::span<const CheckpointPiece> pieces) {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    for (const auto& range : unchanged.ranges[i]) {
      if (range.is_same && range.file < 0)
        bytes += static_cast<std::uint64_t>(range.elements()) * dtype_bytes(pieces[i].dtype);
    }
  }
  return bytes;
}

}  // namespace

void write_pieces(FolderWriter& folder, int rank, std::span<const CheckpointPiece> pieces, const SavedMemory& memory) {
  const Unchanged unchanged = folder.link_unchanged(rank, pieces, memory);
  StateFile changed(state_file_name(rank, memory.compresses)), kept(kept_file_name(rank, memory.compresses));
  const bool has_kept = kept_bytes(unchanged, pieces) >= kLeastLinked;
  std::uint64_t position = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const auto& piece = pieces[i];
    SavedTensor tensor{piece.dtype, piece.shape, {}};
    HEDDLE_CHECK(piece.bytes.size() == static_cast<std::size_t>(piece.end - piece.begin) * dtype_bytes(piece.dtype));
    for (const auto& range : unchanged.ranges[i]) {
      if (range.file >= 0) {
        const auto& link = unchanged.files[static_cast<std::size_t>(range.file)].link;
        tensor.pieces.push_back({link, range.begin, range.end, range.at});
      } else {
        StateFile& file = has_kept && range.is_same ? kept : changed;
        const std::int64_t at = file.add(piece, range, position);
        tensor.pieces.push_back({file.name(), range.begin, range.end, at});
      }
    }
    position += piece.bytes.size();
    folder.manifest.tensors.emplace(piece.name, std::move(tensor));
  }
  require_space(folder.folder().parent_path(),
                most_stored(changed.bytes() + kept.bytes(), memory.compresses) + kSmallFiles);
  // What is kept comes first, so that all but what changed is read when the other file's reading begins.
  kept.write(folder, memory, [](std::uint64_t) {});
  changed.write(folder, memory, [&](std::uint64_t read) {
    if (memory.snapshot != nullptr) memory.snapshot->reach(std::min(read, position));
  });
}

}  // namespace heddle
