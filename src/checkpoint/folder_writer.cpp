#include "checkpoint/folder_writer.h"

#include <system_error>
#include <utility>

#include "base/error.h"
#include "formats/files.h"

namespace heddle {

namespace fs = std::filesystem;

FolderWriter::FolderWriter(fs::path folder, fs::path previous, ChunkWriter writer)
    : folder_(std::move(folder)), previous_folder_(std::move(previous)), writer_(std::move(writer)) {
  try {
    if (!previous_folder_.empty()) previous_ = read_manifest(previous_folder_ / "manifest.json");
  } catch (const Error&) {
    previous_.files.clear();  // it is damaged: nothing is taken from it
  }
}

void FolderWriter::write_state(const std::string& name, FileParts parts, const ChunkWriter::OnRead& on_read,
                               bool compresses) {
  add(compresses ? writer_.write_compressed(folder_ / name, parts, on_read)
                 : writer_.write(folder_ / name, parts, on_read));
  verify(name);
}

void FolderWriter::write_or_link(const KeptFile& kept) {
  const std::string text = kept.source.empty() ? kept.text : read_text_file(kept.source);
  const std::span<const std::byte> part = std::as_bytes(std::span(text));
  if (previous_.files.contains(kept.name) && links(check_parts(kept.name, std::span(&part, 1)))) return;
  add(writer_.write(folder_ / kept.name, std::span(&part, 1)));
  verify(kept.name);
}

Unchanged FolderWriter::link_unchanged(int rank, std::span<const CheckpointPiece> pieces, const SavedMemory& memory) {
  Unchanged unchanged = find_unchanged(previous_folder_, previous_, rank, pieces, memory.read, memory.buffers);
  for (std::size_t i = 0; i < unchanged.files.size(); ++i) {
    if (!links(unchanged.files[i])) unchanged.leave_out(i);
  }
  return unchanged;
}

void FolderWriter::add(CheckedFile file) {
  std::string name = file.name;
  manifest.files.emplace(std::move(name), std::move(file));
}

void FolderWriter::verify(const std::string& name) { writer_.verify(folder_ / name, manifest.files.at(name)); }

/// False on a file system without links, and for a file whose dead bytes are damaged.
bool FolderWriter::links(const Unchanged::File& file) {
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

bool FolderWriter::links(const CheckedFile& file) {
  if (file.bytes < kLeastLinked || !previous_.files.at(file.name).has_same_content(file)) return false;
  std::error_code error;
  fs::create_hard_link(previous_folder_ / file.name, folder_ / file.name, error);
  if (error) return false;  // a file system without links
  manifest.files.emplace(file.name, file);
  return true;
}

}  // namespace heddle
