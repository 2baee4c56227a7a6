#include "checkpoint/save.h"

#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/agreement.h"
#include "checkpoint/folder.h"
#include "formats/files.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

/// Manifest, headers, folders.
constexpr std::uint64_t kSmallFiles = std::uint64_t{1} << 20;
/// Smaller files are written again each time: a fault of the disk then costs one checkpoint, not all that share the
/// file.
constexpr std::uint64_t kLeastLinked = std::uint64_t{1} << 20;

/// Adds files to a folder, and to this rank's part of the manifest. Those that the checkpoint before has too are links
/// to it: two names of one file, which the file system removes with the last of them.
class FolderWriter {
 public:
  FolderWriter(fs::path folder, fs::path previous) : folder_(std::move(folder)), previous_folder_(std::move(previous)) {
    try {
      if (!previous_folder_.empty()) previous_ = read_manifest(previous_folder_ / "manifest.json");
    } catch (const Error&) {
      previous_.files.clear();  // it is damaged: nothing is taken from it
    }
  }

  void write(const std::string& name, FileParts parts) {
    const CheckedFile file = write_checked_file(folder_ / name, parts);
    verify_file(folder_ / name, file);
    manifest.files.emplace(name, file);
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

  Manifest manifest;

 private:
  bool links(const CheckedFile& file) {
    if (file.bytes < kLeastLinked || !previous_.files.at(file.name).has_same_content(file)) return false;
    std::error_code error;
    fs::create_hard_link(previous_folder_ / file.name, folder_ / file.name, error);
    if (error) return false;  // a file system without links
    manifest.files.emplace(file.name, file);
    return true;
  }

  fs::path folder_, previous_folder_;
  Manifest previous_;
};

/// A safetensors file of some of the pieces.
struct StateFile {
  std::string name;
  std::vector<SafetensorsWriter::Entry> entries;
  std::vector<std::span<const std::byte>> parts = {{}};  // the header's place first
};

void write_pieces(FolderWriter& folder, int rank, std::span<const CheckpointPiece> pieces) {
  StateFile file{fmt::format("state-{:05}.safetensors", rank), {}};
  for (const auto& piece : pieces) {
    SavedTensor tensor{piece.dtype, piece.shape, {}};
    HEDDLE_CHECK(piece.bytes.size() == static_cast<std::size_t>(piece.end - piece.begin) * dtype_bytes(piece.dtype));
    if (piece.end > piece.begin) {
      const bool is_whole = piece.end - piece.begin == tensor.elements();
      file.entries.push_back({piece.name, piece.dtype, is_whole ? piece.shape : std::vector{piece.end - piece.begin}});
      file.parts.push_back(piece.bytes);
      tensor.pieces.push_back({file.name, piece.begin, piece.end});
    }
    folder.manifest.tensors.emplace(piece.name, std::move(tensor));
  }
  if (file.entries.empty()) return;
  std::uint64_t data_bytes = 0;
  const std::string header = safetensors_header(file.name, file.entries, {{"format", "heddle-checkpoint"}}, data_bytes);
  file.parts[0] = std::as_bytes(std::span(header));
  folder.write(file.name, file.parts);
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
void commit(const fs::path& aside, const fs::path& target) {
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

fs::path save(const fs::path& output_dir, const fs::path& aside, std::int64_t step,
              std::span<const CheckpointPiece> pieces, const Json& state, std::span<const KeptFile> files,
              Communicator& communicator) {
  fs::path target = checkpoint_folder(output_dir, step);
  const bool is_first = communicator.rank() == 0;
  const auto previous = newest_other_step(output_dir, step, communicator);
  const std::uint64_t bytes = bytes_to_write(pieces, communicator);
  agree(communicator, [&] {
    if (!is_first) return;
    require_space(output_dir, bytes + kSmallFiles);
    fs::remove_all(aside);
    make_folder(aside);
  });

  std::string mine;
  agree(communicator, [&] {
    FolderWriter folder(aside, previous < 0 ? fs::path() : checkpoint_folder(output_dir, previous));
    write_pieces(folder, communicator.rank(), pieces);
    folder.manifest.step = step;
    folder.manifest.state = is_first ? state : Json::object();
    if (is_first) {
      for (const auto& file : files) folder.copy_or_link(file);
    }
    mine = to_text(folder.manifest);
  });

  const auto parts = gather_texts(communicator, mine);
  agree(communicator, [&] {
    if (!is_first) return;
    const std::string text = to_text(combine(parts, aside.string()));
    write_text_file(aside / "manifest.json", text);
    if (read_text_file(aside / "manifest.json") != text) fail("{}: reads back otherwise", aside.string());
    sync_folder(aside);
    commit(aside, target);
    sync_folder(output_dir);
  });
  return target;
}

}  // namespace

fs::path save_checkpoint(const fs::path& output_dir, std::int64_t step, std::span<const CheckpointPiece> pieces,
                         const Json& state, std::span<const KeptFile> files, Communicator& communicator) {
  const fs::path aside = aside_folder(output_dir, step);
  try {
    return save(output_dir, aside, step, pieces, state, files, communicator);
  } catch (...) {
    std::error_code ignored;
    if (communicator.rank() == 0) fs::remove_all(aside, ignored);
    throw;
  }
}

}  // namespace heddle
