#include "checkpoint/manifest.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "formats/files.h"
#include "formats/json_reader.h"

namespace heddle {
namespace {

constexpr std::string_view kFormat = "heddle-checkpoint";
constexpr int kFormatVersion = 3, kOldestVersion = 2;  // 2: no piece has "at"

std::string first_line(std::string_view rest) {
  return fmt::format("{{\"xxh3\": \"{}\",\n", checksum_text(checksum_of(std::as_bytes(std::span(rest)))));
}

Json to_json(const SavedTensor& tensor) {
  Json pieces = Json::array();
  for (const auto& piece : tensor.pieces) {
    pieces.push_back(Json{{"file", piece.file}, {"begin", piece.begin}, {"end", piece.end}});
    if (piece.at > 0) pieces.back()["at"] = piece.at;
  }
  return {{"dtype", safetensors_name(tensor.dtype)}, {"shape", tensor.shape}, {"pieces", std::move(pieces)}};
}

SavedTensor tensor_from(const Json& value, const std::string& where) {
  const JsonReader reader(value, where);
  SavedTensor tensor;
  tensor.dtype = dtype_from_safetensors(reader.text("dtype"));
  for (const auto& extent : value.at("shape")) tensor.shape.push_back(extent.get<std::int64_t>());
  for (const auto& entry : value.at("pieces")) {
    const JsonReader piece(entry, where);
    tensor.pieces.push_back({piece.text("file"), piece.integer("begin", 0, INT64_MAX),
                             piece.integer("end", 0, INT64_MAX), piece.integer_or("at", 0, 0, INT64_MAX)});
  }
  return tensor;
}

}  // namespace

std::int64_t SavedTensor::elements() const {
  std::int64_t product = 1;
  for (const auto extent : shape) {
    if (__builtin_mul_overflow(product, extent, &product)) fail("a tensor's shape overflows");
  }
  return product;
}

void Manifest::add(const Manifest& other) {
  for (const auto& [name, file] : other.files) {
    if (!files.emplace(name, file).second) fail("internal: two ranks wrote {}", name);
  }
  for (const auto& [name, theirs] : other.tensors) {
    const auto [found, is_new] = tensors.emplace(name, theirs);
    if (is_new) continue;
    auto& tensor = found->second;
    if (tensor.dtype != theirs.dtype || tensor.shape != theirs.shape)
      fail("internal: ranks save tensor {} in several shapes or types", name);
    tensor.pieces.insert(tensor.pieces.end(), theirs.pieces.begin(), theirs.pieces.end());
  }
}

void Manifest::require_complete(const std::string& where) {
  for (auto& [name, tensor] : tensors) {
    std::sort(tensor.pieces.begin(), tensor.pieces.end(),
              [](const auto& a, const auto& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
    std::int64_t at = 0;
    for (const auto& piece : tensor.pieces) {
      if (!files.contains(piece.file)) fail("{}: tensor {} lies in {}, which is not listed", where, name, piece.file);
      if (piece.begin != at || piece.end < piece.begin) {
        fail("{}: tensor {}: a piece begins at element {}; expected {}", where, name, piece.begin, at);
      }
      at = piece.end;
    }
    if (at != tensor.elements())
      fail("{}: tensor {}: its pieces have {} elements of {}", where, name, at, tensor.elements());
  }
}

std::string to_text(const Manifest& manifest) {
  Json::object_t files, tensors;
  for (const auto& [name, file] : manifest.files) files.emplace_back(name, to_json(file));
  for (const auto& [name, tensor] : manifest.tensors) tensors.emplace_back(name, to_json(tensor));
  const Json document = {{"format", kFormat},
                         {"version", kFormatVersion},
                         {"step", manifest.step},
                         {"chunk_bytes", kChunkBytes},
                         {"state", manifest.state},
                         {"files", Json(std::move(files))},
                         {"tensors", Json(std::move(tensors))}};
  const std::string rest = document.dump(1).substr(2) + "\n";  // behind "{\n"
  return first_line(rest) + rest;
}

Manifest parse_manifest(const std::string& text, const std::string& where) {
  const std::size_t line = text.find('\n');
  const std::string_view rest = std::string_view(text).substr(line == std::string::npos ? text.size() : line + 1);
  const Json document = parse_json(text, where);
  const JsonReader reader(document, where);
  if (reader.text("format") != kFormat) reader.refuse("format", kFormat);
  reader.integer("version", kOldestVersion, kFormatVersion);
  if (!text.starts_with(first_line(rest))) fail("{}: is damaged: its checksum is not that of its text", where);
  if (reader.integer("chunk_bytes", 1, INT64_MAX) != static_cast<std::int64_t>(kChunkBytes))
    reader.refuse("chunk_bytes", fmt::format("{}", kChunkBytes));
  Manifest manifest;
  manifest.step = reader.integer("step", 0, INT64_MAX);
  manifest.state = reader.object("state").value();
  for (const auto& [name, value] : reader.object("files").value().items())
    manifest.files.emplace(name, checked_file_from(value, name, where));
  for (const auto& [name, value] : reader.object("tensors").value().items())
    manifest.tensors.emplace(name, tensor_from(value, fmt::format("{}: tensor {}", where, name)));
  return manifest;
}

Manifest read_manifest(const std::filesystem::path& path) {
  Manifest manifest = parse_manifest(read_text_file(path), path.string());
  manifest.require_complete(path.string());
  return manifest;
}

}  // namespace heddle
