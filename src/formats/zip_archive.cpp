#include "formats/zip_archive.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "formats/json.h"

namespace heddle {
namespace {

constexpr std::uint64_t kMaxDirectoryBytes = std::uint64_t{64} << 20;
constexpr std::size_t kEndBytes = 22, kLocatorBytes = 20, kEnd64Bytes = 56, kEntryBytes = 46, kLocalBytes = 30;
constexpr std::uint64_t kBlock = std::uint64_t{1} << 20;
constexpr std::uint64_t kIn64 = 0xffffffff;  // the value lies in the ZIP64 field

/// A little-endian number of `bytes` bytes at `at`, which the caller knows to be there.
std::uint64_t number_at(std::string_view text, std::size_t at, std::size_t bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes; ++i) value |= std::uint64_t{static_cast<unsigned char>(text[at + i])} << (8 * i);
  return value;
}

std::string read_text(const FileReader& file, std::uint64_t offset, std::uint64_t bytes) {
  if (offset > file.size() || bytes > file.size() - offset)
    fail("{}: is a damaged zip archive: bytes {} to {} lie outside the file", file.path(), offset, offset + bytes);
  std::string text(bytes, '\0');
  file.read(offset, std::span(text));
  return text;
}

std::uint32_t add_to_crc(std::uint32_t crc, const std::string& text) {
  return static_cast<std::uint32_t>(
      ::crc32_z(crc, reinterpret_cast<const Bytef*>(text.data()), static_cast<z_size_t>(text.size())));
}

struct Directory {
  std::uint64_t entries, bytes, begin;
};

Directory find_directory(const FileReader& file) {
  const std::uint64_t tail_bytes = std::min<std::uint64_t>(file.size(), kEndBytes + 0xffff);
  const std::uint64_t tail_begin = file.size() - tail_bytes;
  const std::string tail = read_text(file, tail_begin, tail_bytes);
  const std::size_t end = tail.rfind("PK\5\6");
  if (end == std::string::npos || tail.size() - end < kEndBytes)
    fail("{}: is a zip archive without an end: it has been cut", file.path());
  Directory directory{number_at(tail, end + 10, 2), number_at(tail, end + 12, 4), number_at(tail, end + 16, 4)};
  if (end >= kLocatorBytes && std::string_view(tail).substr(end - kLocatorBytes, 4) == "PK\6\7") {
    const std::string end64 = read_text(file, number_at(tail, end - kLocatorBytes + 8, 8), kEnd64Bytes);
    if (!end64.starts_with("PK\6\6")) fail("{}: is a damaged zip archive: its ZIP64 end is none", file.path());
    directory = {number_at(end64, 32, 8), number_at(end64, 40, 8), number_at(end64, 48, 8)};
  }
  if (directory.bytes > kMaxDirectoryBytes)
    fail("{}: its zip directory has {} bytes; expected at most {}", file.path(), directory.bytes, kMaxDirectoryBytes);
  return directory;
}

/// Sizes and offset that did not fit into 32 bits, in the order of the format.
void read_zip64(std::string_view extra, std::array<std::uint64_t*, 3> values) {
  for (std::size_t at = 0; at + 4 <= extra.size();) {
    const std::uint64_t id = number_at(extra, at, 2), bytes = number_at(extra, at + 2, 2);
    at += 4;
    if (bytes > extra.size() - at) return;
    if (id == 1) {
      std::size_t next = at;
      for (auto* value : values) {
        if (*value != kIn64 || next + 8 > at + bytes) continue;
        *value = number_at(extra, next, 8);
        next += 8;
      }
    }
    at += bytes;
  }
}

}  // namespace

bool is_zip(const FileReader& file) { return file.size() >= 4 && read_text(file, 0, 4) == "PK\3\4"; }

ZipArchive::ZipArchive(const FileReader& file) : file_(file) {
  const Directory directory = find_directory(file);
  const std::string text = read_text(file, directory.begin, directory.bytes);
  std::size_t at = 0;
  for (std::uint64_t i = 0; i < directory.entries; ++i) {
    const auto damaged = [&] { fail("{}: is a damaged zip archive: entry {} of its directory", file.path(), i); };
    if (text.size() - at < kEntryBytes || std::string_view(text).substr(at, 4) != "PK\1\2") damaged();
    const std::uint64_t flags = number_at(text, at + 8, 2), method = number_at(text, at + 10, 2);
    std::uint64_t stored = number_at(text, at + 20, 4), bytes = number_at(text, at + 24, 4);
    std::uint64_t local = number_at(text, at + 42, 4);
    const auto crc = static_cast<std::uint32_t>(number_at(text, at + 16, 4));
    const std::size_t name_bytes = number_at(text, at + 28, 2), extra_bytes = number_at(text, at + 30, 2);
    const std::size_t comment_bytes = number_at(text, at + 32, 2);
    at += kEntryBytes;
    if (text.size() - at < name_bytes + extra_bytes + comment_bytes) damaged();
    const std::string name = text.substr(at, name_bytes);
    read_zip64(std::string_view(text).substr(at + name_bytes, extra_bytes), {&bytes, &stored, &local});
    at += name_bytes + extra_bytes + comment_bytes;
    if (method != 0 || (flags & 1) != 0 || stored != bytes)
      fail("{}: entry {} is compressed or encrypted; expected it stored", file.path(), text_excerpt(name));
    const std::string header = read_text(file, local, kLocalBytes);
    if (!header.starts_with("PK\3\4")) damaged();
    const std::uint64_t begin = local + kLocalBytes + number_at(header, 26, 2) + number_at(header, 28, 2);
    if (begin > file.size() || bytes > file.size() - begin)
      fail("{}: entry {} lies outside the file", file.path(), text_excerpt(name));
    if (!entries_.emplace(name, Entry{begin, bytes, crc}).second)
      fail("{}: has two entries named {}", file.path(), text_excerpt(name));
  }
}

const ZipArchive::Entry* ZipArchive::find(const std::string& name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : &found->second;
}

std::string ZipArchive::read(const std::string& name, std::uint64_t most) const {
  const Entry* entry = find(name);
  HEDDLE_CHECK(entry != nullptr);
  if (entry->bytes > most)
    fail("{}: its {} has {} bytes; expected at most {}", file_.path(), text_excerpt(name), entry->bytes, most);
  std::string text = read_text(file_, entry->begin, entry->bytes);
  compare(name, add_to_crc(0, text));
  return text;
}

void ZipArchive::verify(const std::string& name) const {
  const Entry& entry = entries_.at(name);
  if (entry.crc == 0) return;
  std::string block;
  std::uint32_t crc = 0;
  for (std::uint64_t at = 0; at < entry.bytes; at += block.size()) {
    block.resize(std::min(kBlock, entry.bytes - at));
    file_.read(entry.begin + at, std::span(block));
    crc = add_to_crc(crc, block);
  }
  compare(name, crc);
}

void ZipArchive::compare(const std::string& name, std::uint32_t crc) const {
  const std::uint32_t expected = entries_.at(name).crc;
  if (expected != 0 && crc != expected)
    fail("{}: is damaged: the bytes of {} have CRC-32 {:08x}; its directory says {:08x}", file_.path(),
         text_excerpt(name), crc, expected);
}

}  // namespace heddle
