#pragma once

#include <cstdint>
#include <filesystem>

/// Names and places in an output folder. What begins with a dot and ends with ".partial" is nobody's: a save that was
/// interrupted, or a removal.
namespace heddle {

/// OUTPUT_DIR/checkpoint-STEP
std::filesystem::path checkpoint_folder(const std::filesystem::path& output_dir, std::int64_t step);
/// OUTPUT_DIR/.checkpoint-STEP.partial
std::filesystem::path aside_folder(const std::filesystem::path& output_dir, std::int64_t step);

/// Takes the name away first, so that no half of a checkpoint is ever found under it.
void remove_checkpoint_folder(const std::filesystem::path& folder);
/// Removes what interrupted saves and removals left.
void remove_leftovers(const std::filesystem::path& output_dir);

/// Manifest, headers, folders of a checkpoint.
inline constexpr std::uint64_t kSmallFiles = std::uint64_t{1} << 20;

/// What state files of `bytes` take at most.
std::uint64_t most_stored(std::uint64_t bytes, bool compresses);

/// Throws Error where fewer bytes are free. A file system that does not tell is taken to have room.
void require_space(const std::filesystem::path& output_dir, std::uint64_t bytes);

}  // namespace heddle
