#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "checkpoint/chunk_writer.h"
#include "checkpoint/manifest.h"
#include "checkpoint/save.h"
#include "checkpoint/unchanged.h"

namespace heddle {

/// Adds files to the folder of a save, and to this rank's part of the manifest, each read again and compared. Those
/// that the checkpoint before has too are links to it: two names of one file, which the file system removes with the
/// last of them.
class FolderWriter {
 public:
  /// `previous`: the folder of the checkpoint before; empty: none.
  FolderWriter(std::filesystem::path folder, std::filesystem::path previous, ChunkWriter writer);

  /// A state file, compressed or as it is.
  void write_state(const std::string& name, FileParts parts, const ChunkWriter::OnRead& on_read, bool compresses);
  /// For what is likely the same as last time.
  void write_or_link(const KeptFile& kept);
  /// Of `pieces`, what the checkpoint before holds too, in files that are linked by now.
  Unchanged link_unchanged(int rank, std::span<const CheckpointPiece> pieces, const SavedMemory& memory);

  const std::filesystem::path& folder() const { return folder_; }
  Manifest manifest;

 private:
  void add(CheckedFile file);
  void verify(const std::string& name);
  bool links(const Unchanged::File& file);
  bool links(const CheckedFile& file);

  std::filesystem::path folder_, previous_folder_;
  ChunkWriter writer_;
  Manifest previous_;
};

/// Links what has not changed of a rank's pieces and writes the rest, once its disk has room for it.
void write_pieces(FolderWriter& folder, int rank, std::span<const CheckpointPiece> pieces, const SavedMemory& memory);

}  // namespace heddle
