#include "checkpoint/unchanged.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "checkpoint/save.h"
#include "formats/safetensors.h"

namespace heddle {
namespace {

constexpr std::size_t kBlock = std::size_t{256} << 10;  // compared at once
constexpr std::size_t kPage = 4096, kSampled = 16;      // looked at first: pages all over a piece

std::string file_prefix(int rank) { return fmt::format("state-{:05}", rank); }

/// The pieces in one state file of the checkpoint before.
class Comparison {
 public:
  Comparison(const std::filesystem::path& path, const ReadMemory& read, std::span<std::byte> buffer)
      : file_(path), read_(read), stored_(buffer.first(kBlock)), current_(buffer.subspan(kBlock, kBlock)) {}

  bool is_same(const CheckpointPiece& piece) const {
    const StoredTensor* tensor = file_.find(piece.name);
    if (tensor == nullptr || tensor->dtype != piece.dtype || tensor->bytes() != piece.bytes.size()) return false;
    const std::size_t bytes = piece.bytes.size();
    for (std::size_t i = 0; i < kSampled; ++i) {
      const std::size_t at = bytes / kSampled * i;
      if (!is_same(*tensor, piece, at, std::min(kPage, bytes - at))) return false;
    }
    for (std::size_t at = 0; at < bytes; at += kBlock) {
      if (!is_same(*tensor, piece, at, std::min(kBlock, bytes - at))) return false;
    }
    return true;
  }

 private:
  bool is_same(const StoredTensor& tensor, const CheckpointPiece& piece, std::size_t at, std::size_t bytes) const {
    file_.read(tensor, at, stored_.first(bytes));
    read_(piece.bytes.subspan(at, bytes), current_.first(bytes));
    return std::memcmp(stored_.data(), current_.data(), bytes) == 0;
  }

  SafetensorsFile file_;
  const ReadMemory& read_;
  std::span<std::byte> stored_, current_;
};

bool has_piece(const Manifest& previous, const std::string& file, const CheckpointPiece& piece) {
  const auto tensor = previous.tensors.find(piece.name);
  if (tensor == previous.tensors.end() || tensor->second.shape != piece.shape) return false;
  const auto& pieces = tensor->second.pieces;
  return std::any_of(pieces.begin(), pieces.end(), [&](const SavedTensor::Piece& found) {
    return found.file == file && found.begin == piece.begin && found.end == piece.end;
  });
}

/// Numbers of the pieces that the file holds as they are now.
std::vector<std::size_t> same_pieces(const std::filesystem::path& folder, const Manifest& previous,
                                     const std::string& file, std::span<const CheckpointPiece> pieces,
                                     const ReadMemory& read, std::span<std::byte> buffer) {
  std::vector<std::size_t> same;
  try {
    const Comparison comparison(folder / file, read, buffer);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (!pieces[i].bytes.empty() && has_piece(previous, file, pieces[i]) && comparison.is_same(pieces[i]))
        same.push_back(i);
    }
  } catch (const Error&) {
    same.clear();  // it is damaged: nothing is taken from it
  }
  return same;
}

}  // namespace

std::string state_file_name(int rank) { return file_prefix(rank) + ".safetensors"; }

Unchanged find_unchanged(const std::filesystem::path& folder, const Manifest& previous, int rank,
                         std::span<const CheckpointPiece> pieces, const ReadMemory& read, std::span<std::byte> buffer) {
  std::vector<std::byte> own;
  if (buffer.size() < 2 * kBlock) {
    own.resize(2 * kBlock);
    buffer = own;
  }
  Unchanged found;
  found.file_of.resize(pieces.size(), -1);
  for (const auto& [name, content] : previous.files) {
    if (!name.starts_with(file_prefix(rank)) || content.bytes < kLeastLinked) continue;
    const auto same = same_pieces(folder, previous, name, pieces, read, buffer);
    std::uint64_t alive = 0;
    for (const auto i : same) alive += pieces[i].bytes.size();
    if (2 * alive < content.bytes) continue;
    Unchanged::File file{name, name, content};
    if (name == state_file_name(rank))
      file.link = fmt::format("{}-of-{}.safetensors", file_prefix(rank), previous.step);
    if (std::any_of(found.files.begin(), found.files.end(), [&](const auto& f) { return f.link == file.link; }))
      continue;
    file.content.name = file.link;
    for (const auto i : same) found.file_of[i] = static_cast<int>(found.files.size());
    found.files.push_back(std::move(file));
  }
  return found;
}

}  // namespace heddle
