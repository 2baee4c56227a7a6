#include "train/folder_export.h"

#include <fcntl.h>

#include <algorithm>
#include <map>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "formats/files.h"
#include "formats/open_file.h"
#include "train/model_folder.h"
#include "train/weight_copy.h"
#include "train/weight_layout.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

/// Writes one folder's tensors.
class FolderTensors {
 public:
  explicit FolderTensors(MergedModel& model) : model_(model) {}

  void write(const OpenFile& file, const PlacedTensor& placed, const StoredTensor& stored) {
    const std::string& name = placed.parameter;
    const auto* rows = model_.changed_rows(name);
    if (!model_.changes(name) || rows != nullptr)
      copy_elements(model_.base(), stored, 0, placed.elements, file, placed);
    if (!model_.changes(name)) return;
    MergedTensor merged = model_.open(name, stored);
    if (rows == nullptr) return write_range(file, placed, merged, 0, placed.elements);
    const std::int64_t columns = stored.shape.at(1);
    for (const std::int64_t row : rows->ids) write_range(file, placed, merged, row * columns, (row + 1) * columns);
  }

 private:
  void write_range(const OpenFile& file, const PlacedTensor& placed, MergedTensor& merged, std::int64_t begin,
                   std::int64_t end) {
    constexpr std::int64_t kPiece = std::int64_t{1} << 20;  // elements
    for (; begin < end; begin += kPiece) {
      const std::int64_t count = std::min(kPiece, end - begin);
      exact_.resize(static_cast<std::size_t>(count));
      merged.read(begin, exact_);
      values_.assign(exact_.begin(), exact_.end());
      bytes_.resize(values_.size() * dtype_bytes(placed.dtype));
      convert(values_.data(), DType::f32, bytes_.data(), placed.dtype, count);
      file.write_at(placed.offset + static_cast<std::uint64_t>(begin) * dtype_bytes(placed.dtype), bytes_);
      convert(bytes_.data(), placed.dtype, values_.data(), DType::f32, count);
      merged.account(exact_, values_);
    }
  }

  MergedModel& model_;
  std::vector<double> exact_;
  std::vector<float> values_;
  std::vector<std::byte> bytes_;
};

}  // namespace

MergeReport export_folder(const ModelSource& model, const fs::path& folder,
                          const std::optional<std::string>& torch_dtype) {
  MergedModel merged(model);
  const ModelConfig& config = merged.source().config;
  // A program of the model, for its list of weights.
  const CompiledRun compiled = compile_evaluation(config, WeightRules(), DType::f32, {1, 1}, 1, 1);
  const WeightSource source = match_weights(merged.base(), compiled.parameters, config);
  std::optional<DType> dtype;
  if (torch_dtype) dtype = dtype_from_torch(*torch_dtype);
  std::map<std::string, std::string> stored_name;
  for (const auto& entry : source.entries) stored_name.emplace(entry.parameter, entry.name);
  const FolderLayout layout = lay_out(folder, source, dtype, [&](const std::string& parameter) {
    const auto extents = compiled.parameters.find(parameter)->shape.extents();
    return std::vector<std::int64_t>(extents.begin(), extents.end());
  });
  FolderTensors tensors(merged);
  make_folder(folder);
  try {
    create_files(layout);
    for (const auto& placed : layout.files) {
      const OpenFile file(placed.aside, O_RDWR);
      for (const auto& tensor : placed.tensors)
        tensors.write(file, tensor, *merged.base().find(stored_name.at(tensor.parameter)));
      file.sync();
    }
    commit_files(layout);
  } catch (...) {
    give_up_files(layout);
    throw;
  }
  write_model_files(folder, model_files(merged.source(), "", torch_dtype));
  return merged.report();
}

}  // namespace heddle
