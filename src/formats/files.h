#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace heddle {

/// Whole file; throws Error naming the path if it cannot be read or is longer than `max_bytes`.
std::string read_text_file(const std::filesystem::path& path, std::size_t max_bytes = std::size_t{256} << 20);

/// Writes aside, syncs, renames and syncs the folder (AsideFile): the path holds the old file or the whole new one,
/// never a part.
void write_text_file(const std::filesystem::path& path, std::string_view text);

/// Creates the folder and its parents; throws Error naming the path that is in the way.
void make_folder(const std::filesystem::path& path);

/// Makes what was created, renamed or removed in the folder last through a power cut.
void sync_folder(const std::filesystem::path& path);
void sync_file(const std::filesystem::path& path);

}  // namespace heddle
