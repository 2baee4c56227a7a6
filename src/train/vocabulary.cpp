#include "train/vocabulary.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "formats/json.h"
#include "models/lora.h"
#include "models/model.h"
#include "train/decoded_tensor.h"
#include "train/overlaid_weights.h"

namespace heddle {
namespace {

/// The names of the tables with a row for each id: the model's own, and without its prefix.
std::set<std::string> table_names(const ModelConfig& model) {
  ModuleList modules;
  emit_model(modules, model);
  std::set<std::string> names = {modules.embedding, modules.head};
  const std::string prefix = base_model_prefix(model);
  if (modules.embedding.starts_with(prefix)) names.insert(modules.embedding.substr(prefix.size()));
  return names;
}

/// A table with other rows than its file. One that is quantized is given as fp32: a mean has no blocks.
class ResizedTable {
 public:
  ResizedTable(const WeightFiles& files, const StoredTensor& stored, std::int64_t rows)
      : tensor(stored), files_(files), stored_(stored), columns_(stored.shape.at(1)) {
    tensor.shape[0] = rows;
    if (is_quantized(stored.dtype)) tensor.dtype = DType::f32;
    tensor.begin = 0;
    tensor.end = static_cast<std::uint64_t>(rows) * row_bytes();
  }

  void read(std::uint64_t offset, std::span<std::byte> target) const {
    const std::uint64_t there = static_cast<std::uint64_t>(stored_.shape[0]) * row_bytes();
    const auto of_file =
        static_cast<std::size_t>(std::min<std::uint64_t>(target.size(), offset < there ? there - offset : 0));
    if (of_file > 0) read_stored(offset, target.first(of_file));
    if (of_file == target.size()) return;
    std::call_once(is_averaged_, [&] { average(); });
    for (std::size_t i = of_file; i < target.size(); ++i) target[i] = mean_[(offset + i) % row_bytes()];
  }

  StoredTensor tensor;  ///< as it is seen

 private:
  std::uint64_t row_bytes() const { return static_cast<std::uint64_t>(columns_) * dtype_bytes(tensor.dtype); }

  void read_stored(std::uint64_t offset, std::span<std::byte> target) const {
    if (tensor.dtype == stored_.dtype) return files_.read(stored_, offset, target);
    const auto begin = static_cast<std::int64_t>(offset / sizeof(float));
    const auto end = begin + static_cast<std::int64_t>(target.size() / sizeof(float));
    DecodedTensor(files_, stored_).for_each_piece(begin, end, [&](std::int64_t first, std::span<const float> values) {
      std::memcpy(target.data() + static_cast<std::size_t>(first - begin) * sizeof(float), values.data(),
                  values.size_bytes());
    });
  }

  void average() const {
    std::vector<double> sums(static_cast<std::size_t>(columns_), 0.0);
    DecodedTensor decoded(files_, stored_);
    decoded.for_each_piece(0, decoded.elements(), [&](std::int64_t first, std::span<const float> values) {
      std::int64_t column = first % columns_;
      for (const float value : values) {
        sums[static_cast<std::size_t>(column)] += static_cast<double>(value);
        column = column + 1 == columns_ ? 0 : column + 1;
      }
    });
    std::vector<float> mean;
    mean.reserve(sums.size());
    for (const double sum : sums) mean.push_back(static_cast<float>(sum / static_cast<double>(stored_.shape[0])));
    mean_.resize(row_bytes());
    convert(mean.data(), DType::f32, mean_.data(), tensor.dtype, columns_);
  }

  const WeightFiles& files_;
  const StoredTensor& stored_;
  const std::int64_t columns_;
  mutable std::once_flag is_averaged_;  // not before it is needed: a plan reads no weight
  mutable std::vector<std::byte> mean_;
};

class ResizedWeights final : public WeightFiles {
 public:
  ResizedWeights(std::unique_ptr<WeightFiles> files, const std::set<std::string>& tables, std::int64_t rows)
      : files_(std::move(files)) {
    for (const auto& name : tables) {
      const StoredTensor* stored = files_->find(name);
      if (stored != nullptr && stored->shape.size() == 2) tables_.try_emplace(name, *files_, *stored, rows);
    }
  }

  std::vector<const StoredTensor*> tensors() const override {
    auto all = files_->tensors();
    for (auto& tensor : all) tensor = find(tensor->name);
    return all;
  }
  const StoredTensor* find(const std::string& name) const override {
    const auto found = tables_.find(name);
    return found == tables_.end() ? files_->find(name) : &found->second.tensor;
  }
  void read(const StoredTensor& tensor, std::uint64_t offset, std::span<std::byte> target) const override {
    const auto found = tables_.find(tensor.name);
    return found == tables_.end() ? files_->read(tensor, offset, target) : found->second.read(offset, target);
  }
  const std::map<std::string, std::string>& weight_map() const override { return files_->weight_map(); }

 private:
  std::unique_ptr<WeightFiles> files_;
  std::map<std::string, ResizedTable> tables_;
};

void set_key(ModelSource& model, const char* key, const Json& value) {
  Json config = parse_json(model.config_text, model.config_path.string());
  config[key] = value;
  model.config_text = config.dump(2) + "\n";
  model.config = parse_model_config(model.config_text, model.config_path.string());
}

/// Rows that the ids of trainable_token_indices need, where they go beyond the model's; else 0.
std::int64_t rows_for_token_indices(const std::filesystem::path& folder, const ModelConfig& model) {
  std::int64_t rows = 0;
  for (const auto& [module, ids] : read_adapter_config(folder).trainable_token_indices) {
    for (const std::int64_t id : ids) rows = std::max(rows, id + 1);
  }
  return rows > model.vocab_size ? rows : 0;
}

}  // namespace

void resize_vocabulary(ModelSource& model, std::int64_t vocab_size) {
  if (vocab_size == model.config.vocab_size) return;
  set_key(model, "vocab_size", vocab_size);
  model.is_resized = true;
}

ModelSource untied(ModelSource model) {
  set_key(model, "tie_word_embeddings", false);
  return model;
}

std::unique_ptr<WeightFiles> resized_weights(std::unique_ptr<WeightFiles> files, const ModelSource& model) {
  return std::make_unique<ResizedWeights>(std::move(files), table_names(model.config), model.config.vocab_size);
}

std::unique_ptr<WeightFiles> untied_weights(std::unique_ptr<WeightFiles> files, const ModelConfig& model) {
  const StoredTensor* table = nullptr;
  for (const auto& name : table_names(model)) {
    if (const auto* found = files->find(name); found != nullptr) table = found;
  }
  if (table == nullptr) return files;  // the tensor that is missing is named where weights and model are compared
  auto untied = std::make_unique<OverlaidWeights>(std::move(files));
  untied->add(std::string(kHeadWeight), *table);
  return untied;
}

std::int64_t vocabulary_of_adapter(const std::filesystem::path& folder, const ModelConfig& model) {
  // By name, the axis of ids.
  std::map<std::string, std::size_t> axes = {
      {std::string(kHeadWeight), 0}, {std::string(kAdapterPrefix) + std::string(kHeadModule) + ".lora_B.weight", 0}};
  for (const auto& name : table_names(model)) {
    axes.emplace(name, 0);
    axes.emplace(std::string(kAdapterPrefix) + module_of(name) + ".lora_embedding_A", 1);
    axes.emplace(std::string(kAdapterPrefix) + module_of(name) + ".token_adapter.base_layer.weight", 0);
  }
  const auto rows_of = [](const std::vector<std::int64_t>& shape, std::size_t axis) {
    return shape.size() == 2 ? shape[axis] : 0;
  };
  if (is_checkpoint(folder)) {
    const Checkpoint checkpoint(folder);
    for (const auto& [name, axis] : axes) {
      const auto found = checkpoint.tensors().find("weights/" + name);
      if (found != checkpoint.tensors().end()) return rows_of(found->second.shape, axis);
    }
    return rows_for_token_indices(folder, model);
  }
  const auto path = folder / "adapter_model.safetensors";
  if (!std::filesystem::exists(path)) return 0;  // whoever opens the adapter says so
  const SafetensorsFile file(path);
  for (const auto& [name, axis] : axes) {
    const StoredTensor* found = file.find(is_adapter_weight(name) ? name : std::string(kAdapterPrefix) + name);
    if (found != nullptr) return rows_of(found->shape, axis);
  }
  return rows_for_token_indices(folder, model);
}

}  // namespace heddle
