#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "formats/json.h"
#include "formats/safetensors.h"

namespace heddle {
namespace {

constexpr std::size_t kHeaderAlignment = 8;  // as the safetensors library pads it, so that tensors are aligned

std::string make_header(const std::string& path, const std::vector<SafetensorsWriter::Entry>& entries,
                        const std::map<std::string, std::string>& metadata, std::uint64_t& data_bytes) {
  Json::object_t members;
  if (!metadata.empty()) members.emplace_back("__metadata__", metadata);
  std::map<std::string_view, int> seen{{"__metadata__", 1}};
  std::uint64_t at = 0;
  for (const auto& entry : entries) {
    if (seen[entry.name]++ != 0) fail("{}: tensor {}: is given twice", path, text_excerpt(entry.name));
    const std::uint64_t element = dtype_bytes(entry.dtype);
    if (at % element != 0) {
      fail("{}: tensor {}: would begin at byte {}, no multiple of its element size {}; write larger elements first",
           path, text_excerpt(entry.name), at, element);
    }
    std::uint64_t bytes = element;
    for (const std::int64_t extent : entry.shape) {
      HEDDLE_CHECK(extent >= 0);
      if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent), &bytes)) {
        fail("{}: tensor {}: its shape overflows", path, text_excerpt(entry.name));
      }
    }
    Json value = Json::object();
    value["dtype"] = safetensors_name(entry.dtype);
    value["shape"] = entry.shape;
    value["data_offsets"] = {at, at + bytes};
    members.emplace_back(entry.name, std::move(value));
    at += bytes;
  }
  data_bytes = at;
  std::string text = Json(std::move(members)).dump();
  text.append((kHeaderAlignment - text.size() % kHeaderAlignment) % kHeaderAlignment, ' ');
  std::string header;
  for (unsigned shift = 0; shift < 64; shift += 8) header += static_cast<char>((text.size() >> shift) & 0xff);
  return header + text;
}

}  // namespace

struct SafetensorsWriter::Impl {
  ~Impl() {
    if (descriptor >= 0) ::close(descriptor);
    if (is_unfinished) ::unlink(partial.c_str());
  }

  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) {
        fail("{}: writing {} bytes at byte {} of {} failed: {}", partial, bytes.size(), written,
             header_bytes + data_bytes, std::strerror(errno));
      }
      written += static_cast<std::uint64_t>(count);
      bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
  }

  std::string path, partial;
  std::uint64_t header_bytes = 0, data_bytes = 0, written = 0;
  int descriptor = -1;
  bool is_unfinished = false;  // the partial file is there and ours
};

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, const std::vector<Entry>& entries,
                                     const std::map<std::string, std::string>& metadata)
    : impl_(std::make_unique<Impl>()) {
  impl_->path = path.string();
  impl_->partial = impl_->path + ".partial";
  const std::string header = make_header(impl_->path, entries, metadata, impl_->data_bytes);
  impl_->header_bytes = header.size();
  impl_->descriptor = ::open(impl_->partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (impl_->descriptor < 0) fail("{}: cannot be created: {}", impl_->partial, std::strerror(errno));
  impl_->is_unfinished = true;
  impl_->write(std::as_bytes(std::span(header)));
}

SafetensorsWriter::~SafetensorsWriter() = default;

void SafetensorsWriter::append(std::span<const std::byte> bytes) {
  HEDDLE_CHECK(impl_->descriptor >= 0);
  HEDDLE_CHECK(bytes.size() <= impl_->header_bytes + impl_->data_bytes - impl_->written);
  impl_->write(bytes);
}

void SafetensorsWriter::finish() {
  Impl& file = *impl_;
  HEDDLE_CHECK(file.descriptor >= 0);
  HEDDLE_CHECK(file.written == file.header_bytes + file.data_bytes);
  if (::fsync(file.descriptor) != 0) {
    fail("{}: syncing {} bytes failed: {}", file.partial, file.written, std::strerror(errno));
  }
  // Some file systems report a failed write only here.
  if (::close(std::exchange(file.descriptor, -1)) != 0) {
    fail("{}: closing after {} bytes failed: {}", file.partial, file.written, std::strerror(errno));
  }
  if (std::rename(file.partial.c_str(), file.path.c_str()) != 0) {
    fail("{}: cannot be renamed to {}: {}", file.partial, file.path, std::strerror(errno));
  }
  file.is_unfinished = false;
  // The name is durable once its folder is.
  const auto folder = std::filesystem::absolute(file.path).parent_path();
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) fail("{}: cannot be opened: {}", folder.string(), std::strerror(errno));
  const int result = ::fsync(descriptor);
  const int reason = errno;
  ::close(descriptor);
  // Not every file system can sync a folder.
  if (result != 0 && reason != EINVAL)
    fail("{}: syncing the folder failed: {}", folder.string(), std::strerror(reason));
}

}  // namespace heddle
