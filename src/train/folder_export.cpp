#include "train/folder_export.h"

#include <fcntl.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/threads.h"
#include "checkpoint/save.h"
#include "comm/job.h"
#include "formats/files.h"
#include "formats/open_file.h"
#include "models/model.h"
#include "models/module_list.h"
#include "train/decoded_tensor.h"
#include "train/model_folder.h"
#include "train/run_weights.h"
#include "train/vocabulary.h"
#include "train/weight_copy.h"
#include "train/weight_layout.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

/// The trained tensors of an adapter, in fp32, by the model's names.
class AdapterTensors {
 public:
  AdapterTensors(const fs::path& folder, const LoraModules& modules) : modules_(modules) {
    if (is_checkpoint(folder)) {
      checkpoint_.emplace(open_checkpoint(folder, *alone()));
    } else {
      file_.emplace(folder / "adapter_model.safetensors");
    }
  }

  std::vector<float> read(const std::string& parameter) const {
    if (checkpoint_) {
      const std::string name = "weights/" + parameter;
      const auto found = checkpoint_->tensors().find(name);
      if (found == checkpoint_->tensors().end()) fail("{}: has no {}", checkpoint_->folder().string(), name);
      std::vector<float> values(static_cast<std::size_t>(found->second.elements()));
      checkpoint_->read(name, 0, found->second.elements(), DType::f32, std::as_writable_bytes(std::span(values)));
      return values;
    }
    const StoredTensor* tensor = file_->find(modules_.saved_name(parameter));
    if (tensor == nullptr) fail("adapter_model.safetensors: has no {}", modules_.saved_name(parameter));
    std::vector<std::byte> bytes(tensor->bytes());
    file_->read(*tensor, 0, bytes);
    std::vector<float> values(bytes.size() / dtype_bytes(tensor->dtype));
    convert(bytes.data(), tensor->dtype, values.data(), DType::f32, static_cast<std::int64_t>(values.size()));
    return values;
  }

 private:
  const LoraModules& modules_;
  std::optional<Checkpoint> checkpoint_;
  std::optional<SafetensorsFile> file_;
};

/// What an adapter adds to one weight: scaling·B·A, element by element.
struct Change {
  std::vector<float> a, b, magnitude;  // [r, I], [O, r], [O] or empty
  std::int64_t rank = 0, inputs = 0, outputs = 0;
  double scaling = 1;
  bool is_transposed = false;
  std::vector<double> norms;  // of DoRA: |W + change| by output

  std::int64_t output_of(std::int64_t element) const { return is_transposed ? element % outputs : element / inputs; }
  double at(std::int64_t element) const {
    const std::int64_t o = output_of(element), i = is_transposed ? element / outputs : element % inputs;
    double sum = 0;
    for (std::int64_t k = 0; k < rank; ++k) {
      sum += static_cast<double>(b[static_cast<std::size_t>(o * rank + k)]) *
             static_cast<double>(a[static_cast<std::size_t>(k * inputs + i)]);
    }
    return scaling * sum;
  }
  /// The merged element of a weight that was `before`.
  double merged(std::int64_t element, double before) const {
    const double sum = before + at(element);
    if (magnitude.empty()) return sum;
    const auto o = static_cast<std::size_t>(output_of(element));
    return sum * static_cast<double>(magnitude[o]) / norms[o];
  }
};

/// Writes one folder's files.
class Merge {
 public:
  /// `modules` is null without an adapter.
  Merge(const WeightFiles& base, const LoraModules* modules, const fs::path& adapter) : base_(base), modules_(modules) {
    if (modules != nullptr) adapter_.emplace(adapter, *modules);
  }

  void write(const OpenFile& file, const PlacedTensor& placed, const std::string& stored_name) {
    const StoredTensor& stored = *base_.find(stored_name);
    const std::string& name = placed.parameter;
    const std::string module = name.substr(0, name.rfind('.'));
    if (modules_ != nullptr && modules_->trains(name)) return replace(file, placed);
    if (modules_ != nullptr && modules_->token_rows(module) != nullptr)
      return replace_rows(file, placed, stored, *modules_->token_rows(module));
    if (modules_ == nullptr || !name.ends_with(".weight") || !modules_->has_adapter(module))
      return copy_elements(base_, stored, 0, placed.elements, file, placed);
    Change change = change_of(module, stored);
    DecodedTensor decoded(base_, stored);
    if (!change.magnitude.empty()) measure(change, decoded);
    ++report.merged;
    decoded.for_each_piece(0, placed.elements, [&](std::int64_t begin, std::span<float> values) {
      std::vector<double> exact(values.size());
      parallel_for(static_cast<std::int64_t>(values.size() + kRow - 1) / kRow, [&](std::int64_t index, int) {
        const auto first = static_cast<std::size_t>(index * kRow), last = std::min(values.size(), first + kRow);
        for (std::size_t i = first; i < last; ++i)
          exact[i] = change.merged(begin + static_cast<std::int64_t>(i), static_cast<double>(values[i]));
      });
      account(exact, values, placed.dtype);
      put(file, placed, begin, values);
    });
  }

  MergeReport report;

  void finish() {
    if (changes_ > 0) report.relative_error = std::sqrt(errors_ / changes_);
  }

 private:
  static constexpr std::int64_t kRow = 16384;

  Change change_of(const std::string& module, const StoredTensor& stored) const {
    const std::string prefix = std::string(kAdapterPrefix) + module + ".";
    Change change;
    change.is_transposed = modules_->is_transposed(module);
    change.outputs = stored.shape[change.is_transposed ? 1 : 0];
    change.inputs = stored.shape[change.is_transposed ? 0 : 1];
    const bool is_table = module == module_of(modules_->embedding());
    change.a = adapter_->read(prefix + (is_table ? "lora_embedding_A" : "lora_A.weight"));
    change.b = adapter_->read(prefix + (is_table ? "lora_embedding_B" : "lora_B.weight"));
    if (modules_->config().use_dora) change.magnitude = adapter_->read(prefix + "lora_magnitude_vector");
    change.rank = modules_->rank_of(module);
    change.scaling = modules_->scaling_of(module);
    if (static_cast<std::int64_t>(change.a.size()) != change.rank * change.inputs ||
        static_cast<std::int64_t>(change.b.size()) != change.outputs * change.rank) {
      fail("{}lora_A and lora_B have {} and {} elements; rank {} of a layer of {} inputs and {} outputs has others",
           prefix, change.a.size(), change.b.size(), change.rank, change.inputs, change.outputs);
    }
    return change;
  }

  /// The rows' norms, in a pass of their own.
  static void measure(Change& change, DecodedTensor& decoded) {
    change.norms.assign(static_cast<std::size_t>(change.outputs), 0.0);
    decoded.for_each_piece(0, decoded.elements(), [&](std::int64_t begin, std::span<const float> values) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        const std::int64_t element = begin + static_cast<std::int64_t>(i);
        const double sum = static_cast<double>(values[i]) + change.at(element);
        change.norms[static_cast<std::size_t>(change.output_of(element))] += sum * sum;
      }
    });
    for (double& norm : change.norms) norm = std::sqrt(norm);
  }

  /// Rounds, and adds up what that costs.
  void account(const std::vector<double>& exact, std::span<float> values, DType type) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto before = static_cast<double>(values[i]);
      values[i] = static_cast<float>(exact[i]);
      float rounded = values[i];
      if (type == DType::bf16) rounded = static_cast<float>(BFloat16(rounded));
      if (type == DType::f16) rounded = static_cast<float>(Float16(rounded));
      const double error = static_cast<double>(rounded) - exact[i];
      report.greatest_error = std::max(report.greatest_error, std::abs(error));
      errors_ += error * error;
      changes_ += (exact[i] - before) * (exact[i] - before);
    }
  }

  void put(const OpenFile& file, const PlacedTensor& placed, std::int64_t begin, std::span<const float> values) const {
    std::vector<std::byte> bytes(values.size() * dtype_bytes(placed.dtype));
    convert(values.data(), DType::f32, bytes.data(), placed.dtype, static_cast<std::int64_t>(values.size()));
    file.write_at(placed.offset + static_cast<std::uint64_t>(begin) * dtype_bytes(placed.dtype), bytes);
  }

  void replace(const OpenFile& file, const PlacedTensor& placed) const {
    const auto values = adapter_->read(placed.parameter);
    if (static_cast<std::int64_t>(values.size()) != placed.elements) {
      fail("{}: the adapter has {} elements, the base {}", placed.parameter, values.size(), placed.elements);
    }
    put(file, placed, 0, values);
  }

  /// All other rows stay as they are.
  void replace_rows(const OpenFile& file, const PlacedTensor& placed, const StoredTensor& stored,
                    const LoraModules::TokenRows& rows) {
    copy_elements(base_, stored, 0, placed.elements, file, placed);
    const std::int64_t columns = stored.shape.at(1);
    const auto values = adapter_->read(rows.weight);
    if (values.size() != rows.ids.size() * static_cast<std::size_t>(columns))
      fail("{}: the adapter has {} elements; expected {} rows of {}", rows.weight, values.size(), rows.ids.size(),
           columns);
    const std::span<const float> all(values);
    for (std::size_t i = 0; i < rows.ids.size(); ++i)
      put(file, placed, rows.ids[i] * columns,
          all.subspan(i * static_cast<std::size_t>(columns), static_cast<std::size_t>(columns)));
    ++report.merged;
  }

  const WeightFiles& base_;
  const LoraModules* modules_;
  std::optional<AdapterTensors> adapter_;
  double errors_ = 0, changes_ = 0;  // sums of squares
};

}  // namespace

MergeReport export_folder(const ModelSource& model, const fs::path& folder,
                          const std::optional<std::string>& torch_dtype) {
  auto base = open_weights(model);
  // A program of the model, for its list of weights.
  const CompiledRun compiled = compile_evaluation(
      model.config, inference_rules(model.config, base.get(), model.adapter_folder), DType::f32, {1, 1}, 1, 1);
  const LoraModules* adapter = compiled.rules.adapter();
  ModelSource written = model;
  if (adapter != nullptr && adapter->splits_tied()) {
    fail("{}: has an adapter of an embedding that the model ties to its head; merged, they would be two",
         model.adapter_folder.string());
  }
  if (adapter != nullptr && adapter->unties_head()) {
    base = untied_weights(std::move(base), model.config);
    written = untied(model);
  }
  const WeightSource source = match_weights(*base, compiled.parameters, model.config);
  std::optional<DType> dtype;
  if (torch_dtype) dtype = dtype_from_torch(*torch_dtype);
  std::map<std::string, std::string> stored_name;
  for (const auto& entry : source.entries) stored_name.emplace(entry.parameter, entry.name);
  const FolderLayout layout = lay_out(folder, source, dtype, [&](const std::string& parameter) {
    const auto extents = compiled.parameters.find(parameter)->shape.extents();
    return std::vector<std::int64_t>(extents.begin(), extents.end());
  });
  Merge merge(*base, adapter, model.adapter_folder);
  make_folder(folder);
  try {
    create_files(layout);
    for (const auto& placed : layout.files) {
      const OpenFile file(placed.aside, O_RDWR);
      for (const auto& tensor : placed.tensors) merge.write(file, tensor, stored_name.at(tensor.parameter));
      file.sync();
    }
    commit_files(layout);
  } catch (...) {
    give_up_files(layout);
    throw;
  }
  merge.finish();
  write_model_files(folder, model_files(written, "", torch_dtype));
  return merge.report;
}

}  // namespace heddle
