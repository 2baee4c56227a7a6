#include "train/weight_layout.h"

#include <map>
#include <span>

#include "base/error.h"
#include "checkpoint/checked_file.h"
#include "formats/files.h"
#include "formats/json.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

std::string index_text(const WeightSource& source, std::uint64_t bytes) {
  Json::object_t map;
  for (const auto& entry : source.entries) map.emplace_back(entry.name, entry.file);
  return Json{{"metadata", {{"total_size", bytes}}}, {"weight_map", std::move(map)}}.dump(2) + "\n";
}

}  // namespace

FolderLayout lay_out(const fs::path& folder, const WeightSource& source, std::optional<DType> dtype,
                     const std::function<std::vector<std::int64_t>(const std::string&)>& shape_of) {
  std::map<std::string, std::vector<const WeightSource::Entry*>> entries_of;
  for (const auto& entry : source.entries) entries_of[entry.file].push_back(&entry);
  FolderLayout layout{folder, {}, {}};
  std::uint64_t all_bytes = 0;
  for (const auto& [name, entries] : entries_of) {
    FileLayout& file = layout.files.emplace_back();
    file.path = folder / name;
    file.aside = file.path.string() + ".partial";
    std::vector<SafetensorsWriter::Entry> header;
    std::uint64_t at = 0;
    for (const auto* entry : entries) {
      header.push_back({entry->name, dtype.value_or(entry->dtype), shape_of(entry->parameter)});
      std::int64_t elements = 1;
      for (const auto extent : header.back().shape) elements *= extent;
      file.tensors.push_back({entry->parameter, elements, header.back().dtype, at});
      at += static_cast<std::uint64_t>(elements) * dtype_bytes(header.back().dtype);
    }
    file.header = safetensors_header(file.path.string(), header, {{"format", "pt"}}, file.bytes);
    HEDDLE_CHECK(file.bytes == at);
    for (auto& tensor : file.tensors) tensor.offset += file.header.size();
    file.bytes += file.header.size();
    all_bytes += at;
  }
  if (source.is_sharded) layout.index = index_text(source, all_bytes);
  return layout;
}

void create_files(const FolderLayout& layout) {
  for (const auto& file : layout.files)
    create_file(file.aside, file.bytes).write_at(0, std::as_bytes(std::span(file.header)));
}

void commit_files(const FolderLayout& layout) {
  std::error_code error;
  for (const auto& file : layout.files) {
    fs::rename(file.aside, file.path, error);
    if (error) fail("{}: cannot be renamed to {}: {}", file.aside.string(), file.path.string(), error.message());
  }
  if (!layout.index.empty()) write_text_file(layout.folder / "model.safetensors.index.json", layout.index);
  sync_folder(layout.folder);
}

void give_up_files(const FolderLayout& layout) {
  std::error_code ignored;
  for (const auto& file : layout.files) fs::remove(file.aside, ignored);
}

}  // namespace heddle
