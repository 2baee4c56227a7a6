#include "checkpoint/checkpoint.h"

#include <algorithm>

#include "base/error.h"
#include "checkpoint/state_file.h"

namespace heddle {
namespace {

constexpr const char* kManifest = "manifest.json";
constexpr std::int64_t kBuffered = std::int64_t{1} << 18;  // elements between a file and memory of another type

bool holds(const StoredTensor& stored, const SavedTensor::Piece& piece) {
  const auto elements = static_cast<std::int64_t>(stored.bytes() / dtype_bytes(stored.dtype));
  return piece.at <= elements && piece.end - piece.begin <= elements - piece.at;
}

}  // namespace

bool is_checkpoint(const std::filesystem::path& folder) {
  std::error_code error;
  return std::filesystem::exists(folder / kManifest, error);
}

Checkpoint::Checkpoint(std::filesystem::path folder) : folder_(std::move(folder)) {
  if (!is_checkpoint(folder_)) fail("{}: is no checkpoint: it has no {}", folder_.string(), kManifest);
  manifest_ = read_manifest(folder_ / kManifest);
  std::error_code error;
  for (const auto& [name, file] : manifest_.files) {
    if (!std::filesystem::exists(folder_ / name, error)) fail("{}: is missing", (folder_ / name).string());
    verify_size(folder_ / name, file);
  }
  const auto decoder = std::make_shared<FrameDecoder>();
  for (const auto& [name, tensor] : manifest_.tensors) {
    for (const auto& piece : tensor.pieces) {
      auto file = files_.find(piece.file);
      if (file == files_.end()) {
        const auto& listed = manifest_.files.at(piece.file);
        file = files_.emplace(piece.file, open_state_file(folder_, listed, decoder)).first;
      }
      const StoredTensor* stored = file->second.find(name);
      if (stored == nullptr || stored->dtype != tensor.dtype || !holds(*stored, piece)) {
        fail("{}: does not hold elements {} to {} of tensor {}, as the manifest says", (folder_ / piece.file).string(),
             piece.begin, piece.end, name);
      }
    }
  }
}

void Checkpoint::verify(int part, int parts) const {
  for (const auto& [name, file] : manifest_.files) verify_file(folder_ / name, file, part, parts);
}

void Checkpoint::read(const std::string& name, std::int64_t begin, std::int64_t end, DType type,
                      std::span<std::byte> target) const {
  const auto found = manifest_.tensors.find(name);
  if (found == manifest_.tensors.end()) fail("{}: has no tensor {}", folder_.string(), name);
  const SavedTensor& tensor = found->second;
  HEDDLE_CHECK(0 <= begin && begin <= end &&
               target.size() == static_cast<std::size_t>(end - begin) * dtype_bytes(type));
  if (end > tensor.elements()) {
    fail("{}: tensor {} has {} elements; elements up to {} are asked for", folder_.string(), name, tensor.elements(),
         end);
  }
  const std::size_t size = dtype_bytes(tensor.dtype);
  std::vector<std::byte> buffer;
  for (const auto& piece : tensor.pieces) {
    const std::int64_t last = std::min(end, piece.end);
    for (std::int64_t at = std::max(begin, piece.begin); at < last;) {
      const SafetensorsFile& file = files_.at(piece.file);
      const std::int64_t count = type == tensor.dtype ? last - at : std::min(kBuffered, last - at);
      const auto offset = static_cast<std::uint64_t>(piece.at + at - piece.begin) * size;
      const auto to = target.subspan(static_cast<std::size_t>(at - begin) * dtype_bytes(type),
                                     static_cast<std::size_t>(count) * dtype_bytes(type));
      if (type == tensor.dtype) {
        file.read(*file.find(name), offset, to);
      } else {
        buffer.resize(static_cast<std::size_t>(count) * size);
        file.read(*file.find(name), offset, buffer);
        convert(buffer.data(), tensor.dtype, to.data(), type, count);
      }
      at += count;
    }
  }
}

}  // namespace heddle
