#include "checkpoint/unchanged.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "checkpoint/save.h"
#include "checkpoint/state_file.h"

namespace heddle {
namespace {

constexpr std::size_t kPage = 4096;          // looked at first
constexpr std::int64_t kUnitsTogether = 16;  // of which two pages are looked at

std::string file_prefix(int rank) { return fmt::format("state-{:05}", rank); }

const char* ending(bool compresses) { return compresses ? ".safetensors.shuffled.zst" : ".safetensors"; }

/// "state-RRRRR-of-STEP.safetensors", once with the step that wrote it.
std::string link_name(const std::string& name, std::int64_t step) {
  if (name.find("-of-") != std::string::npos) return name;
  const std::size_t stem = name.find('.');
  return fmt::format("{}-of-{}{}", name.substr(0, stem), step, name.substr(stem));
}

/// The units of a piece, and where the checkpoint before has them.
class Units {
 public:
  explicit Units(const CheckpointPiece& piece)
      : piece_(&piece),
        element_bytes_(dtype_bytes(piece.dtype)),
        unit_(static_cast<std::int64_t>(kUnitBytes / element_bytes_)),
        found_(static_cast<std::size_t>((piece.end - piece.begin + unit_ - 1) / unit_)) {}

  const CheckpointPiece& piece() const { return *piece_; }
  std::int64_t count() const { return static_cast<std::int64_t>(found_.size()); }
  std::int64_t begin(std::int64_t unit) const { return piece_->begin + unit * unit_; }
  std::int64_t end(std::int64_t unit) const { return std::min(begin(unit) + unit_, piece_->end); }
  std::span<const std::byte> bytes(std::int64_t unit) const {
    return piece_->bytes.subspan(static_cast<std::size_t>(unit) * kUnitBytes,
                                 static_cast<std::size_t>(end(unit) - begin(unit)) * element_bytes_);
  }

  /// Those that lie whole between two elements: a range of numbers.
  std::pair<std::int64_t, std::int64_t> within(std::int64_t from, std::int64_t to) const {
    const std::int64_t first = (std::max(from, piece_->begin) - piece_->begin + unit_ - 1) / unit_;
    const std::int64_t last = to >= piece_->end ? count() : (to - piece_->begin) / unit_;
    return {first, last};
  }

  void set(std::int64_t unit, int file, std::int64_t at) { found_[static_cast<std::size_t>(unit)] = {file, at}; }
  void leave_out(int file) {
    for (auto& found : found_) found = found.file == file ? Found{} : found;
  }
  std::uint64_t alive(int file) const {
    std::uint64_t alive = 0;
    for (std::int64_t unit = 0; unit < count(); ++unit)
      alive += found_[static_cast<std::size_t>(unit)].file == file ? bytes(unit).size() : 0;
    return alive;
  }

  /// `linked`: by file, its number among those that are linked, or -1.
  std::vector<Unchanged::Range> ranges(std::span<const int> linked) const {
    std::vector<Unchanged::Range> ranges;
    for (std::int64_t unit = 0; unit < count(); ++unit) {
      const Found& found = found_[static_cast<std::size_t>(unit)];
      const bool is_same = found.file >= 0;
      const int file = is_same ? linked[static_cast<std::size_t>(found.file)] : -1;
      const Unchanged::Range range{begin(unit), end(unit), is_same, file, file < 0 ? 0 : found.at};
      if (!ranges.empty() && continues(ranges.back(), range)) {
        ranges.back().end = range.end;
      } else {
        ranges.push_back(range);
      }
    }
    return ranges;
  }

 private:
  struct Found {
    int file = -1;
    std::int64_t at = 0;
  };
  static bool continues(const Unchanged::Range& before, const Unchanged::Range& range) {
    return before.is_same == range.is_same && before.file == range.file &&
           (range.file < 0 || before.at + before.elements() == range.at);
  }

  const CheckpointPiece* piece_;
  std::size_t element_bytes_;
  std::int64_t unit_;  // elements
  std::vector<Found> found_;
};

/// Compares memory with a state file of the checkpoint before.
class Comparison {
 public:
  Comparison(SafetensorsFile file, const ReadMemory& read, std::span<std::byte> buffer)
      : file_(std::move(file)),
        read_(read),
        stored_(buffer.first(kUnitBytes)),
        current_(buffer.subspan(kUnitBytes, kUnitBytes)) {}

  /// Finds the units that the file holds, of those that lie whole in `saved`.
  void find(Units& units, const SavedTensor::Piece& saved, int file) const {
    const StoredTensor* stored = file_.find(units.piece().name);
    if (stored == nullptr) return;
    const auto [first, last] = units.within(saved.begin, saved.end);
    const auto place = [&](std::int64_t unit) { return saved.at + units.begin(unit) - saved.begin; };
    for (std::int64_t unit = first; unit < last; unit += kUnitsTogether) {
      const std::int64_t end = std::min(unit + kUnitsTogether, last), middle = unit + (end - unit) / 2;
      const bool may_be_same = is_same(*stored, place(unit), page_of(units, unit)) ||
                               is_same(*stored, place(middle), page_of(units, middle));
      for (std::int64_t i = unit; may_be_same && i < end; ++i) {
        if (is_same(*stored, place(i), units.bytes(i))) units.set(i, file, place(i));
      }
    }
  }

 private:
  static std::span<const std::byte> page_of(const Units& units, std::int64_t unit) {
    const auto bytes = units.bytes(unit);
    return bytes.first(std::min(kPage, bytes.size()));
  }
  bool is_same(const StoredTensor& stored, std::int64_t at, std::span<const std::byte> bytes) const {
    const std::uint64_t offset = static_cast<std::uint64_t>(at) * dtype_bytes(stored.dtype);
    if (offset + bytes.size() > stored.bytes()) return false;
    file_.read(stored, offset, stored_.first(bytes.size()));
    read_(bytes, current_.first(bytes.size()));
    return std::memcmp(stored_.data(), current_.data(), bytes.size()) == 0;
  }

  SafetensorsFile file_;
  const ReadMemory& read_;
  std::span<std::byte> stored_, current_;
};

}  // namespace

std::string state_file_name(int rank, bool compresses) { return file_prefix(rank) + ending(compresses); }
std::string kept_file_name(int rank, bool compresses) { return file_prefix(rank) + "-kept" + ending(compresses); }

void Unchanged::leave_out(std::size_t file) {
  for (auto& piece : ranges) {
    for (auto& range : piece) {
      if (range.file == static_cast<int>(file)) range = {range.begin, range.end};
    }
  }
}

Unchanged find_unchanged(const std::filesystem::path& folder, const Manifest& previous, int rank,
                         std::span<const CheckpointPiece> pieces, const ReadMemory& read, std::span<std::byte> buffer) {
  std::vector<std::byte> own;
  if (buffer.size() < 2 * kUnitBytes) {
    own.resize(2 * kUnitBytes);
    buffer = own;
  }
  std::vector<Units> units(pieces.begin(), pieces.end());
  std::vector<Unchanged::File> files;
  const auto decoder = std::make_shared<FrameDecoder>();
  for (const auto& [name, content] : previous.files) {
    if (!name.starts_with(file_prefix(rank)) || content.bytes < kLeastLinked) continue;
    const int file = static_cast<int>(files.size());
    files.push_back({name, link_name(name, previous.step), content});
    files.back().content.name = files.back().link;
    try {
      const Comparison comparison(open_state_file(folder, content, decoder), read, buffer);
      for (auto& piece : units) {
        const auto tensor = previous.tensors.find(piece.piece().name);
        if (tensor == previous.tensors.end() || tensor->second.shape != piece.piece().shape ||
            tensor->second.dtype != piece.piece().dtype)
          continue;
        for (const auto& saved : tensor->second.pieces) {
          if (saved.file == name) comparison.find(piece, saved, file);
        }
      }
    } catch (const Error&) {
      for (auto& piece : units) piece.leave_out(file);  // it is damaged: nothing is taken from it
    }
  }

  struct Candidate {
    std::uint64_t alive;
    std::size_t file;
  };
  std::vector<Candidate> candidates;
  for (std::size_t file = 0; file < files.size(); ++file) {
    std::uint64_t alive = 0;
    for (const auto& piece : units) alive += piece.alive(static_cast<int>(file));
    if (2 * alive >= files[file].content.content_bytes()) candidates.push_back({alive, file});
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.alive > b.alive; });
  Unchanged found;
  std::vector<int> linked(files.size(), -1);
  for (const auto& candidate : candidates) {
    auto& file = files[candidate.file];
    const bool is_taken =
        std::any_of(found.files.begin(), found.files.end(), [&](const auto& f) { return f.link == file.link; });
    if (is_taken || found.files.size() == kMostLinked) continue;
    linked[candidate.file] = static_cast<int>(found.files.size());
    found.files.push_back(std::move(file));
  }
  for (const auto& piece : units) found.ranges.push_back(piece.ranges(linked));
  return found;
}

}  // namespace heddle
