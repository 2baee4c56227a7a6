#include "train/checkpoint_export.h"

#include <fcntl.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "checkpoint/save.h"
#include "comm/job.h"
#include "formats/files.h"
#include "formats/json_reader.h"
#include "formats/open_file.h"
#include "train/model_folder.h"
#include "train/weight_layout.h"
#include "train/weight_rules.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kBuffered = std::int64_t{1} << 20;  // elements between the files
constexpr std::string_view kWeights = "weights/";

WeightSource source_of(const JsonReader& document) {
  WeightSource source;
  source.is_sharded = document.boolean_or("is_sharded", false);
  for (const auto& value : document.value().at("weights")) {
    const JsonReader entry(value, document.file());
    source.entries.push_back(
        {entry.text("parameter"), entry.text("name"), dtype_from_safetensors(entry.text("dtype")), entry.text("file")});
  }
  return source;
}

void copy_tensor(const Checkpoint& checkpoint, const PlacedTensor& tensor, const OpenFile& file,
                 std::vector<std::byte>& piece) {
  const std::size_t size = dtype_bytes(tensor.dtype);
  for (std::int64_t begin = 0; begin < tensor.elements; begin += kBuffered) {
    const std::int64_t end = std::min(begin + kBuffered, tensor.elements);
    piece.resize(static_cast<std::size_t>(end - begin) * size);
    checkpoint.read(std::string(kWeights) + tensor.parameter, begin, end, tensor.dtype, piece);
    file.write_at(tensor.offset + static_cast<std::uint64_t>(begin) * size, piece);
  }
}

/// Those of a checkpoint's files that are the model's: neither pieces of tensors nor about the run.
std::vector<KeptFile> kept_files(const Checkpoint& checkpoint) {
  std::set<std::string> others = {"effective_config.json"};
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    for (const auto& piece : tensor.pieces) others.insert(piece.file);
  }
  std::vector<KeptFile> kept;
  for (const auto& [name, file] : checkpoint.manifest().files) {
    if (!others.contains(name)) kept.push_back({name, checkpoint.folder() / name, ""});
  }
  return kept;
}

}  // namespace

Json export_document(const WeightSource& source, const std::optional<std::string>& torch_dtype) {
  Json weights = Json::array();
  for (const auto& entry : source.entries) {
    const DType dtype = torch_dtype ? dtype_from_torch(*torch_dtype) : entry.dtype;
    weights.push_back(Json{{"parameter", entry.parameter},
                           {"name", entry.name},
                           {"dtype", safetensors_name(dtype)},
                           {"file", entry.file}});
  }
  return {{"is_sharded", source.is_sharded}, {"weights", std::move(weights)}};
}

void export_checkpoint(const Checkpoint& checkpoint, const fs::path& folder) {
  const JsonReader state(checkpoint.state(), (checkpoint.folder() / "manifest.json").string());
  const WeightSource source = source_of(state.object("export"));
  const FolderLayout layout = lay_out(folder, source, std::nullopt, [&](const std::string& parameter) {
    const auto found = checkpoint.tensors().find(std::string(kWeights) + parameter);
    if (found == checkpoint.tensors().end()) fail("{}: has no weights of {}", checkpoint.folder().string(), parameter);
    return found->second.shape;
  });
  make_folder(folder);
  try {
    create_files(layout);
    std::vector<std::byte> piece;
    for (const auto& placed : layout.files) {
      const OpenFile file(placed.aside, O_RDWR);
      for (const auto& tensor : placed.tensors) copy_tensor(checkpoint, tensor, file, piece);
      file.sync();
    }
    commit_files(layout);
  } catch (...) {
    give_up_files(layout);
    throw;
  }
  auto files = kept_files(checkpoint);
  const bool is_adapter =
      std::any_of(files.begin(), files.end(), [](const KeptFile& file) { return file.name == "adapter_config.json"; });
  if (is_adapter) std::erase_if(files, [](const KeptFile& file) { return file.name == "config.json"; });
  write_model_files(folder, files);
}

void export_adapter(const fs::path& source, const fs::path& folder) {
  if (!is_adapter_folder(source))
    fail("{}: has no adapter_config.json; expected a LoRA run or its checkpoint", source.string());
  if (is_checkpoint(source)) return export_checkpoint(open_checkpoint(source, *alone()), folder);
  const auto weights = source / "adapter_model.safetensors";
  const SafetensorsFile whole(weights);  // is checked when it is opened
  auto files = companion_files(source);
  for (const auto& file : {source / "adapter_config.json", weights})
    files.push_back({file.filename().string(), file, ""});
  write_model_files(folder, files);
}

}  // namespace heddle
