#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/frames.h"
#include "formats/json.h"
#include "formats/open_file.h"

struct XXH3_state_s;

/// Files whose chunks have checksums, so that they are hashed and verified in parallel, and damage is located.
namespace heddle {

inline constexpr std::uint64_t kChunkBytes = std::uint64_t{4} << 20;

inline std::int64_t chunk_count(std::uint64_t bytes) {
  return static_cast<std::int64_t>((bytes + kChunkBytes - 1) / kChunkBytes);
}

/// What the manifest says of a file. Checksums are XXH3, of each kChunkBytes of the file; the last chunk may be
/// shorter.
struct CheckedFile {
  std::string name;
  std::uint64_t bytes = 0;
  std::vector<std::uint64_t> checksums;
  std::optional<FrameIndex> frames =
      std::nullopt;  ///< of a compressed file; sizes and checksums are those of the file all the same

  std::uint64_t content_bytes() const { return frames ? frames->content_bytes : bytes; }
  bool has_same_content(const CheckedFile& other) const { return bytes == other.bytes && checksums == other.checksums; }
};

/// XXH3 of bytes that come in pieces.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;
  void add(std::span<const std::byte> bytes);
  std::uint64_t value() const;

 private:
  XXH3_state_s* state_;
};

/// As many hexadecimal digits as it takes, always the same number.
std::string checksum_text(std::uint64_t checksum);
std::uint64_t checksum_of(std::span<const std::byte> bytes);

Json to_json(const CheckedFile& file);
/// `where` names the manifest in errors.
CheckedFile checked_file_from(const Json& value, const std::string& name, const std::string& where);

/// A file in memory: its parts, one after another.
using FileParts = std::span<const std::span<const std::byte>>;

/// Hashes a file in memory.
CheckedFile check_parts(const std::string& name, FileParts parts);

/// Creates or empties a file and reserves `bytes`, where the file system can: a full disk shows here.
OpenFile create_file(const std::filesystem::path& path, std::uint64_t bytes);

/// Throws Error naming the file and the bytes where its content is not what `expected` says, in every `parts`-th chunk
/// from number `part` on.
void verify_file(const std::filesystem::path& path, const CheckedFile& expected, int part = 0, int parts = 1);
/// The same for the size alone.
void verify_size(const std::filesystem::path& path, const CheckedFile& expected);
/// The same for one chunk, whose checksum was `found`.
void require_checksum(const std::filesystem::path& path, const CheckedFile& expected, std::int64_t chunk,
                      std::uint64_t found);

}  // namespace heddle
