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
#include "checkpoint/folder_writer.h"
#include "formats/files.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

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
    // Beside another checkpoint each rank checks what it has to write, once it knows.
    if (previous_.empty()) require_space(output_dir_, most_stored(bytes, memory_.compresses) + kSmallFiles);
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
      for (const auto& file : files_) folder.write_or_link(file);
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
