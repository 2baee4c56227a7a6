#include "checkpoint/save.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/agreement.h"
#include "checkpoint/folder.h"
#include "checkpoint/unchanged.h"
#include "formats/files.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

/// Manifest, headers, folders.
constexpr std::uint64_t kSmallFiles = std::uint64_t{1} << 20;
/// Adds files to a folder, and to this rank's part of the manifest. Those that the checkpoint before has too are links
/// to it: two names of one file, which the file system removes with the last of them.
class FolderWriter {
 public:
  FolderWriter(fs::path folder, fs::path previous, ChunkWriter writer)
      : folder_(std::move(folder)), previous_folder_(std::move(previous)), writer_(std::move(writer)) {
    try {
      if (!previous_folder_.empty()) previous_ = read_manifest(previous_folder_ / "manifest.json");
    } catch (const Error&) {
      previous_.files.clear();  // it is damaged: nothing is taken from it
    }
  }

  void write(const std::string& name, FileParts parts, const ChunkWriter::OnRead& on_read = {}) {
    add(writer_.write(folder_ / name, parts, on_read));
    verify(name);
  }
  /// For what is likely the same as last time.
  void write_or_link(const std::string& name, FileParts parts) {
    if (previous_.files.contains(name) && links(check_parts(name, parts))) return;
    write(name, parts);
  }
  void copy_or_link(const KeptFile& kept) {
    const std::string text = kept.source.empty() ? kept.text : read_text_file(kept.source);
    const std::span<const std::byte> part = std::as_bytes(std::span(text));
    write_or_link(kept.name, std::span(&part, 1));
  }

  /// Of `pieces`, those that the checkpoint before holds too, in files that are linked by now.
  Unchanged link_unchanged(int rank, std::span<const CheckpointPiece> pieces, const SavedMemory& memory) {
    Unchanged unchanged = find_unchanged(previous_folder_, previous_, rank, pieces, memory.read, memory.buffers);
    for (std::size_t i = 0; i < unchanged.files.size(); ++i) {
      if (!links(unchanged.files[i]))
        std::replace(unchanged.file_of.begin(), unchanged.file_of.end(), static_cast<int>(i), -1);
    }
    return unchanged;
  }

  Manifest manifest;

 private:
  void add(CheckedFile file) {
    std::string name = file.name;
    manifest.files.emplace(std::move(name), std::move(file));
  }
  void verify(const std::string& name) { writer_.verify(folder_ / name, manifest.files.at(name)); }

  /// False on a file system without links, and for a file whose dead bytes are damaged.
  bool links(const Unchanged::File& file) {
    std::error_code error;
    fs::create_hard_link(previous_folder_ / file.name, folder_ / file.link, error);
    if (error) return false;
    try {
      writer_.verify(folder_ / file.link, file.content);
    } catch (const Error&) {
      fs::remove(folder_ / file.link);
      return false;
    }
    add(file.content);
    return true;
  }

  bool links(const CheckedFile& file) {
    if (file.bytes < kLeastLinked || !previous_.files.at(file.name).has_same_content(file)) return false;
    std::error_code error;
    fs::create_hard_link(previous_folder_ / file.name, folder_ / file.name, error);
    if (error) return false;  // a file system without links
    manifest.files.emplace(file.name, file);
    return true;
  }

  fs::path folder_, previous_folder_;
  ChunkWriter writer_;
  Manifest previous_;
};

/// A safetensors file of those pieces that have changed.
class StateFile {
 public:
  explicit StateFile(std::string name) : name_(std::move(name)) {}

  /// `position`: of the piece among the bytes of all.
  void add(const CheckpointPiece& piece, bool is_whole, std::uint64_t position) {
    entries_.push_back({piece.name, piece.dtype, is_whole ? piece.shape : std::vector{piece.end - piece.begin}});
    parts_.push_back(piece.bytes);
    places_.push_back({bytes_, position});
    bytes_ += piece.bytes.size();
  }

  /// Of all pieces there are `all_bytes`.
  void write(FolderWriter& folder, Snapshot* snapshot, std::uint64_t all_bytes) {
    if (entries_.empty()) return;
    std::uint64_t data_bytes = 0;
    const std::string header = safetensors_header(name_, entries_, {{"format", "heddle-checkpoint"}}, data_bytes);
    parts_[0] = std::as_bytes(std::span(header));
    folder.write(name_, parts_, [&](std::uint64_t read) {
      if (snapshot == nullptr) return;
      if (snapshot->is_cancelled()) fail("{}: its run has ended", name_);
      if (read <= header.size()) return;
      const std::uint64_t offset = read - header.size();
      snapshot->reach(offset == bytes_ ? all_bytes : position_of(offset));
    });
  }

 private:
  struct Place {
    std::uint64_t offset, position;  // among the bytes of this file's pieces, and of all
  };
  /// Where the byte at `offset` lies among all.
  std::uint64_t position_of(std::uint64_t offset) const {
    const auto next = std::partition_point(places_.begin(), places_.end(),
                                           [&](const Place& place) { return place.offset <= offset; });
    return std::prev(next)->position + offset - std::prev(next)->offset;
  }

  std::string name_;
  std::vector<SafetensorsWriter::Entry> entries_;
  std::vector<std::span<const std::byte>> parts_ = {{}};  // the header's place first
  std::vector<Place> places_;
  std::uint64_t bytes_ = 0;
};

void write_pieces(FolderWriter& folder, int rank, std::span<const CheckpointPiece> pieces, const SavedMemory& memory) {
  const Unchanged unchanged = folder.link_unchanged(rank, pieces, memory);
  StateFile file(state_file_name(rank));
  std::uint64_t position = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const auto& piece = pieces[i];
    SavedTensor tensor{piece.dtype, piece.shape, {}};
    HEDDLE_CHECK(piece.bytes.size() == static_cast<std::size_t>(piece.end - piece.begin) * dtype_bytes(piece.dtype));
    if (piece.end > piece.begin) {
      const int link = unchanged.file_of[i];
      if (link < 0) file.add(piece, piece.end - piece.begin == tensor.elements(), position);
      const std::string name = link < 0 ? state_file_name(rank) : unchanged.files[static_cast<std::size_t>(link)].link;
      tensor.pieces.push_back({name, piece.begin, piece.end});
    }
    position += piece.bytes.size();
    folder.manifest.tensors.emplace(piece.name, std::move(tensor));
  }
  file.write(folder, memory.snapshot, position);
}

/// Of all ranks.
std::uint64_t bytes_to_write(std::span<const CheckpointPiece> pieces, Communicator& communicator) {
  std::int64_t bytes = 0;
  for (const auto& piece : pieces) bytes += static_cast<std::int64_t>(piece.bytes.size());
  communicator.all_reduce(std::span(&bytes, 1), Reduction::sum, "size of a checkpoint");
  return static_cast<std::uint64_t>(bytes);
}

/// The newest checkpoint of another step, as rank 0 sees it; -1: none.
std::int64_t newest_other_step(const fs::path& output_dir, std::int64_t step, Communicator& communicator) {
  std::int64_t found = -1;
  if (communicator.rank() == 0) {
    for (const auto other : checkpoint_steps(output_dir)) {
      if (other != step && found < 0) found = other;
    }
  }
  return broadcast_number(communicator, found);
}

/// Gives the folder its final name. Where that exists, as after a resume from an older checkpoint, the two change
/// places, so that one of them is there at any instant.
void give_name(const fs::path& aside, const fs::path& target) {
  if (::rename(aside.c_str(), target.c_str()) == 0) return;
  const int error = errno;
  if ((error == ENOTEMPTY || error == EEXIST) &&
      ::renameat2(AT_FDCWD, aside.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
    fs::remove_all(aside);
    return;
  }
  if (error == ENOTEMPTY || error == EEXIST) {  // a file system that cannot exchange
    remove_checkpoint_folder(target);
    if (::rename(aside.c_str(), target.c_str()) == 0) return;
  }
  fail("{}: cannot be renamed to {}: {}", aside.string(), target.filename().string(), std::strerror(errno));
}

Manifest combine(const std::vector<std::string>& parts, const std::string& where) {
  Manifest manifest = parse_manifest(parts.front(), where);
  for (std::size_t rank = 1; rank < parts.size(); ++rank) manifest.add(parse_manifest(parts[rank], where));
  manifest.require_complete(where);
  return manifest;
}

}  // namespace

CheckpointSave::CheckpointSave(fs::path output_dir, std::int64_t step, std::vector<CheckpointPiece> pieces, Json state,
                               std::vector<KeptFile> files, Communicator& communicator, SavedMemory memory)
    : output_dir_(std::move(output_dir)),
      aside_(aside_folder(output_dir_, step)),
      step_(step),
      pieces_(std::move(pieces)),
      state_(std::move(state)),
      files_(std::move(files)),
      communicator_(communicator),
      memory_(std::move(memory)) {
  const auto previous = newest_other_step(output_dir_, step_, communicator_);
  if (previous >= 0) previous_ = checkpoint_folder(output_dir_, previous);
  const std::uint64_t bytes = bytes_to_write(pieces_, communicator_);
  agree(communicator_, [&] {
    if (communicator_.rank() != 0) return;
    require_space(output_dir_, bytes + kSmallFiles);
    fs::remove_all(aside_);
    make_folder(aside_);
  });
}

CheckpointSave::~CheckpointSave() {
  std::error_code ignored;
  if (!is_committed_ && communicator_.rank() == 0) fs::remove_all(aside_, ignored);
}

void CheckpointSave::write() {
  const bool is_first = communicator_.rank() == 0;
  try {
    FolderWriter folder(aside_, previous_, ChunkWriter(memory_.buffers, memory_.read));
    write_pieces(folder, communicator_.rank(), pieces_, memory_);
    folder.manifest.step = step_;
    folder.manifest.state = is_first ? state_ : Json::object();
    if (is_first) {
      for (const auto& file : files_) folder.copy_or_link(file);
    }
    written_ = to_text(folder.manifest);
  } catch (...) {
    failure_ = std::current_exception();
  }
  if (memory_.snapshot != nullptr) memory_.snapshot->end();
}

fs::path CheckpointSave::commit() {
  agree(communicator_, [&] {
    if (failure_) std::rethrow_exception(failure_);
  });
  fs::path target = checkpoint_folder(output_dir_, step_);
  const auto parts = gather_texts(communicator_, written_);
  agree(communicator_, [&] {
    if (communicator_.rank() != 0) return;
    const std::string text = to_text(combine(parts, aside_.string()));
    write_text_file(aside_ / "manifest.json", text);
    if (read_text_file(aside_ / "manifest.json") != text) fail("{}: reads back otherwise", aside_.string());
    sync_folder(aside_);
    give_name(aside_, target);
    sync_folder(output_dir_);
  });
  is_committed_ = true;
  return target;
}

fs::path save_checkpoint(const fs::path& output_dir, std::int64_t step, std::span<const CheckpointPiece> pieces,
                         const Json& state, std::span<const KeptFile> files, Communicator& communicator) {
  CheckpointSave save(output_dir, step, {pieces.begin(), pieces.end()}, state, {files.begin(), files.end()},
                      communicator);
  save.write();
  return save.commit();
}

}  // namespace heddle
