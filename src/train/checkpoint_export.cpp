#include "train/checkpoint_export.h"

#include <fcntl.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "checkpoint/save.h"
#include "comm/job.h"
#include "formats/files.h"
#include "formats/open_file.h"
#include "train/checkpoint_base.h"
#include "train/model_folder.h"
#include "train/weight_copy.h"
#include "train/weight_layout.h"
#include "train/weight_rules.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kBuffered = std::int64_t{1} << 20;  // elements between the files
constexpr std::string_view kWeights = "weights/";

bool is_saved(const Checkpoint& checkpoint, const std::string& parameter) {
  return checkpoint.tensors().contains(std::string(kWeights) + parameter);
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
  const WeightSource source = export_source(checkpoint);
  const auto base = open_base(checkpoint, *alone());
  std::map<std::string, const StoredTensor*> frozen;  // by parameter
  for (const auto& entry : source.entries) {
    if (!base || is_saved(checkpoint, entry.parameter)) continue;
    if (const auto* stored = base->find(entry.name); stored != nullptr) frozen.emplace(entry.parameter, stored);
  }
  const FolderLayout layout = lay_out(folder, source, std::nullopt, [&](const std::string& parameter) {
    if (const auto found = frozen.find(parameter); found != frozen.end()) return found->second->shape;
    if (!is_saved(checkpoint, parameter)) fail("{}: has no weights of {}", checkpoint.folder().string(), parameter);
    return checkpoint.tensors().at(std::string(kWeights) + parameter).shape;
  });
  make_folder(folder);
  try {
    create_files(layout);
    std::vector<std::byte> piece;
    for (const auto& placed : layout.files) {
      const OpenFile file(placed.aside, O_RDWR);
      for (const auto& tensor : placed.tensors) {
        const auto found = frozen.find(tensor.parameter);
        if (found == frozen.end()) {
          copy_tensor(checkpoint, tensor, file, piece);
        } else {
          copy_elements(*base, *found->second, 0, tensor.elements, file, tensor);
        }
      }
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
