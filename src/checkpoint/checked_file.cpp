#include "checkpoint/checked_file.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <functional>
#include <mutex>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "base/threads.h"
#include "checkpoint/chunked_parts.h"
#include "formats/file_reader.h"
#include "formats/json_reader.h"

namespace heddle {
namespace {

constexpr std::size_t kReadBytes = std::size_t{256} << 10;  // of a thread, between file and checksum

/// Calls body for each chunk on all threads. What a body throws comes out of here, the first of them.
void for_each_chunk(std::int64_t chunks, const std::function<void(std::int64_t)>& body) {
  std::mutex mutex;
  std::optional<std::string> error;
  parallel_for(chunks, [&](std::int64_t chunk, int) {
    try {
      body(chunk);
    } catch (const std::exception& e) {
      const std::lock_guard lock(mutex);
      if (!error) error = e.what();
    }
  });
  if (error) throw Error(*error);
}

std::uint64_t checksum_of_chunk(const FileReader& file, std::uint64_t bytes, std::int64_t chunk) {
  thread_local std::vector<std::byte> buffer(kReadBytes);
  const auto begin = static_cast<std::uint64_t>(chunk) * kChunkBytes, end = std::min(begin + kChunkBytes, bytes);
  Checksum checksum;
  for (std::uint64_t at = begin; at < end; at += kReadBytes) {
    const auto piece = std::span(buffer).first(std::min<std::uint64_t>(kReadBytes, end - at));
    file.read(at, piece);
    checksum.add(piece);
  }
  return checksum.value();
}

/// Of a file of `bytes`.
FrameIndex frames_from(const JsonReader& reader, std::uint64_t bytes) {
  FrameIndex index;
  index.content_bytes = static_cast<std::uint64_t>(reader.integer("bytes", 0, INT64_MAX));
  reader.integer("frame_bytes", kFrameBytes, kFrameBytes);
  const Json* frames = reader.find("frames");
  const auto may_be = [](const Json& frame) {
    return frame.is_number_unsigned() && frame.get<std::uint64_t>() <= kMostFrameBytes;
  };
  if (frames == nullptr || !frames->is_array() || !std::all_of(frames->begin(), frames->end(), may_be) ||
      frames->size() != index.content_bytes / kFrameBytes + (index.content_bytes % kFrameBytes > 0 ? 1 : 0))
    reader.refuse("frames", "the size of each frame");
  index.stored_bytes = frames->get<std::vector<std::uint32_t>>();
  if (std::accumulate(index.stored_bytes.begin(), index.stored_bytes.end(), std::uint64_t{0}) != bytes)
    reader.refuse("frames", "frames that make up the file");
  return index;
}

}  // namespace

Checksum::Checksum() : state_(XXH3_createState()) {
  if (state_ == nullptr) fail("no memory for the checksum of a file");
  XXH3_64bits_reset(state_);
}

Checksum::~Checksum() { XXH3_freeState(state_); }

void Checksum::add(std::span<const std::byte> bytes) { XXH3_64bits_update(state_, bytes.data(), bytes.size()); }

std::uint64_t Checksum::value() const { return XXH3_64bits_digest(state_); }

std::string checksum_text(std::uint64_t checksum) { return fmt::format("{:016x}", checksum); }

std::uint64_t checksum_of(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

Json to_json(const CheckedFile& file) {
  Json checksums = Json::array();
  for (const auto checksum : file.checksums) checksums.push_back(checksum_text(checksum));
  Json value = {{"bytes", file.bytes}, {"xxh3", std::move(checksums)}};
  if (file.frames) {
    value["zstd"] = {
        {"bytes", file.frames->content_bytes}, {"frame_bytes", kFrameBytes}, {"frames", file.frames->stored_bytes}};
  }
  return value;
}

CheckedFile checked_file_from(const Json& value, const std::string& name, const std::string& where) {
  const JsonReader reader(value, fmt::format("{}: file {}", where, name));
  if (name.find('/') != std::string::npos || name == "..")
    fail("{}: names a file outside the checkpoint: {}", where, name);
  CheckedFile file;
  file.name = name;
  file.bytes = static_cast<std::uint64_t>(reader.integer("bytes", 0, INT64_MAX));
  const Json* checksums = reader.find("xxh3");
  if (checksums == nullptr || !checksums->is_array() ||
      static_cast<std::int64_t>(checksums->size()) != chunk_count(file.bytes)) {
    reader.refuse("xxh3", "one checksum for each chunk");
  }
  for (const auto& entry : *checksums) {
    std::uint64_t checksum = 0;
    const std::string text = entry.is_string() ? entry.get<std::string>() : "";
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), checksum, 16);
    if (text.size() != checksum_text(0).size() || error != std::errc{} || end != text.data() + text.size())
      reader.refuse("xxh3", "checksums of 16 hexadecimal digits");
    file.checksums.push_back(checksum);
  }
  if (reader.find("zstd") != nullptr) file.frames = frames_from(reader.object("zstd"), file.bytes);
  return file;
}

CheckedFile check_parts(const std::string& name, FileParts parts) {
  const ChunkedParts chunks(parts);
  CheckedFile found{name, chunks.bytes(), {}};
  found.checksums.resize(static_cast<std::size_t>(chunk_count(found.bytes)));
  for_each_chunk(chunk_count(found.bytes), [&](std::int64_t chunk) {
    Checksum checksum;
    chunks.visit(chunks.begin(chunk), chunks.end(chunk),
                 [&](std::span<const std::byte> piece) { checksum.add(piece); });
    found.checksums[static_cast<std::size_t>(chunk)] = checksum.value();
  });
  return found;
}

OpenFile create_file(const std::filesystem::path& path, std::uint64_t bytes) {
  OpenFile file(path, O_RDWR | O_CREAT | O_TRUNC);
  const auto length = static_cast<off_t>(bytes);
  if (bytes == 0 || ::fallocate(file.descriptor(), 0, 0, length) == 0) return file;
  const bool cannot_reserve = errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL;
  if (cannot_reserve && ::ftruncate(file.descriptor(), length) == 0) return file;
  fail("{}: {} bytes cannot be reserved: {}", path.string(), bytes, std::strerror(errno));
}

void verify_size(const std::filesystem::path& path, const CheckedFile& expected) {
  const auto size = FileReader(path).size();
  if (size != expected.bytes) fail("{}: has {} bytes; the manifest says {}", path.string(), size, expected.bytes);
}

void require_checksum(const std::filesystem::path& path, const CheckedFile& expected, std::int64_t chunk,
                      std::uint64_t found) {
  const auto wanted = expected.checksums[static_cast<std::size_t>(chunk)];
  if (found == wanted) return;
  const auto begin = static_cast<std::uint64_t>(chunk) * kChunkBytes;
  fail("{}: is damaged between bytes {} and {}: checksum {}, the manifest says {}", path.string(), begin,
       std::min(begin + kChunkBytes, expected.bytes), checksum_text(found), checksum_text(wanted));
}

void verify_file(const std::filesystem::path& path, const CheckedFile& expected, int part, int parts) {
  verify_size(path, expected);
  const FileReader file(path);
  const auto chunks = chunk_count(expected.bytes);
  for_each_chunk((chunks - part + parts - 1) / parts, [&](std::int64_t index) {
    const std::int64_t chunk = part + index * parts;
    require_checksum(path, expected, chunk, checksum_of_chunk(file, expected.bytes, chunk));
  });
}

}  // namespace heddle
