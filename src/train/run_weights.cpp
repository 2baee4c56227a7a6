#include "train/run_weights.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "quantize/decode.h"
#include "train/adapter_weights.h"
#include "train/checkpoint_base.h"
#include "train/decoded_tensor.h"
#include "train/local_state.h"
#include "train/vocabulary.h"

namespace heddle {
namespace {

constexpr std::string_view kMagnitude = ".lora_magnitude_vector";

/// The module of an adapter's weight whose name ends so.
std::string module_of_part(const std::string& weight, std::string_view end) {
  return weight.substr(kAdapterPrefix.size(), weight.size() - kAdapterPrefix.size() - end.size());
}

/// |W[o,:]| for each output, as the run holds W: DoRA's magnitudes where B is zero. W is [O,I], or [I,O] where
/// `is_transposed`.
std::vector<float> row_norms(const WeightFiles& files, const StoredTensor& tensor, const Parameter& held,
                             bool is_transposed) {
  const std::int64_t rows = tensor.shape[0], columns = tensor.shape[1], elements = rows * columns;
  std::vector<double> squares(static_cast<std::size_t>(is_transposed ? columns : rows), 0.0);
  const auto add = [&](std::int64_t begin, std::span<const float> values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::int64_t at = begin + static_cast<std::int64_t>(i);
      const auto value = static_cast<double>(values[i]);
      squares[static_cast<std::size_t>(is_transposed ? at % columns : at / columns)] += value * value;
    }
  };
  if (held.is_quantized() && *held.storage != tensor.dtype) {
    const std::vector<std::byte> encoded = encode_four_bit(files, tensor, *held.storage);
    std::vector<float> values;
    constexpr std::int64_t kPiece = std::int64_t{1} << 18;
    for (std::int64_t begin = 0; begin < elements; begin += kPiece) {
      values.resize(static_cast<std::size_t>(std::min(kPiece, elements - begin)));
      decode(*held.storage, encoded.data(), elements, begin, static_cast<std::int64_t>(values.size()), values.data());
      add(begin, values);
    }
  } else {
    DecodedTensor(files, tensor).for_each_piece(0, elements, add);
  }
  std::vector<float> norms(squares.size());
  std::transform(squares.begin(), squares.end(), norms.begin(),
                 [](double sum) { return static_cast<float>(std::sqrt(sum)); });
  return norms;
}

/// The weight of a module: of a head that is tied, the embedding's.
std::string weight_of(const std::string& module, const CompiledRun& compiled) {
  std::string own = module + ".weight";
  return compiled.parameters.find(own) != nullptr ? own : compiled.rules.adapter()->embedding();
}

const StoredTensor& stored_weight(const WeightFiles& base, const WeightSource& source, const std::string& weight) {
  const auto entry = std::find_if(source.entries.begin(), source.entries.end(),
                                  [&](const auto& candidate) { return candidate.parameter == weight; });
  HEDDLE_CHECK(entry != source.entries.end());
  return *base.find(entry->name);
}

void fill_held(const std::vector<float>& values, const Parameter& parameter, const CompiledRun& compiled,
               Executor& executor) {
  for (const auto& tensor : loaded_tensors(executor, parameter, compiled.sharding)) {
    convert(values.data() + tensor.begin, DType::f32, tensor.values.data, tensor.values.dtype,
            tensor.end - tensor.begin);
  }
}

void fill_magnitudes(const WeightFiles* base, const WeightSource& source, const CompiledRun& compiled,
                     Executor& executor) {
  const LoraModules& modules = *compiled.rules.adapter();
  for (const auto& parameter : compiled.parameters.list) {
    if (!parameter.name.ends_with(kMagnitude)) continue;
    if (base == nullptr) fail("lora.use_dora is true; expected model_name_or_path: it splits weights that are there");
    const std::string module = module_of_part(parameter.name, kMagnitude), weight = weight_of(module, compiled);
    fill_held(row_norms(*base, stored_weight(*base, source, weight), *compiled.parameters.find(weight),
                        modules.is_transposed(module)),
              parameter, compiled, executor);
  }
}

/// The rows of a table with these ids, decoded.
std::vector<float> rows_of(const WeightFiles& files, const StoredTensor& table, const std::vector<std::int64_t>& ids) {
  const std::int64_t columns = table.shape[1], block = block_elements(table.dtype);
  std::vector<float> rows, values;
  std::vector<std::byte> bytes;
  for (const std::int64_t id : ids) {
    const std::int64_t begin = id * columns / block * block, end = ((id + 1) * columns + block - 1) / block * block;
    bytes.resize(static_cast<std::size_t>(storage_bytes(table.dtype, end - begin)));
    files.read(table, static_cast<std::uint64_t>(storage_bytes(table.dtype, begin)), bytes);
    values.resize(static_cast<std::size_t>(end - begin));
    decode(table.dtype, bytes.data(), end - begin, 0, end - begin, values.data());
    const auto first = values.begin() + (id * columns - begin);
    rows.insert(rows.end(), first, first + columns);
  }
  return rows;
}

/// Rows of trainable_token_indices start as the base's.
void fill_token_rows(const WeightFiles* base, const WeightSource& source, const CompiledRun& compiled,
                     Executor& executor) {
  const LoraModules& modules = *compiled.rules.adapter();
  for (const auto& parameter : compiled.parameters.list) {
    if (!parameter.name.ends_with(kTokenRows)) continue;
    if (base == nullptr) fail("lora.trainable_token_indices: expected model_name_or_path, whose rows are trained on");
    const std::string module = module_of_part(parameter.name, kTokenRows);
    const StoredTensor& table = stored_weight(*base, source, weight_of(module, compiled));
    fill_held(rows_of(*base, table, modules.token_rows(module)->ids), parameter, compiled, executor);
  }
}

}  // namespace

RunWeights::RunWeights(const ModelSource& model, std::unique_ptr<WeightFiles> files, const CompiledRun& compiled)
    : base_(std::move(files)) {
  HEDDLE_CHECK((base_ != nullptr) == model.has_weights);
  if (base_) {
    if (compiled.rules.adapter() != nullptr && compiled.rules.adapter()->unties_head())
      base_ = untied_weights(std::move(base_), model.config);
    base_source_ = match_weights(*base_, compiled.parameters, model.config);
  } else {
    base_source_ = fresh_source(compiled.parameters, dtype_from_torch(model.config.torch_dtype));
  }
  const LoraModules* modules = compiled.rules.adapter();
  if (modules == nullptr) {
    const Parameters& all = compiled.parameters;
    if (!base_ && compiled.update >= 0 && all.trainable_count() < all.count())
      fail("weights are frozen; expected model_name_or_path: those of a model from scratch have learned nothing");
    return;
  }
  adapter_ = true;
  if (compiled.rules.adapter_folder().empty()) {
    adapter_source_ = fresh_adapter_source(compiled.parameters, *modules);
  } else {
    adapter_files_ = open_adapter_weights(compiled.rules.adapter_folder());
    adapter_source_ = match_adapter(*adapter_files_, compiled.parameters, *modules);
  }
  exported_ = adapter_source_;
  for (const auto& entry : adapter_source_.entries) {
    if (entry.parameter != modules->tied_weight()) continue;
    exported_.entries.push_back(entry);
    exported_.entries.back().name = modules->saved_name(std::string(kHeadWeight));
  }
}

void RunWeights::load_base(const WeightSource& source, const CompiledRun& compiled, std::uint64_t seed,
                           Executor& executor) const {
  if (base_) {
    load_weights(*base_, source, compiled.parameters, compiled.sharding, executor);
  } else {
    initialize_weights(compiled.parameters, seed, compiled.sharding, executor);
  }
}

void RunWeights::load(const CompiledRun& compiled, std::uint64_t seed, Executor& executor) const {
  load_base(base_source_, compiled, seed, executor);
  if (!adapter_) return;
  if (adapter_files_) {
    load_weights(*adapter_files_, adapter_source_, compiled.parameters, compiled.sharding, executor);
  } else {
    initialize_adapter(compiled.parameters, seed, compiled.sharding, executor);
    fill_magnitudes(base_.get(), base_source_, compiled, executor);
    fill_token_rows(base_.get(), base_source_, compiled, executor);
  }
}

void RunWeights::load_frozen(const CompiledRun& compiled, std::uint64_t seed, Executor& executor) const {
  WeightSource frozen;
  for (const auto& entry : base_source_.entries) {
    if (!compiled.parameters.find(entry.parameter)->is_trainable) frozen.entries.push_back(entry);
  }
  if (!frozen.entries.empty()) load_base(frozen, compiled, seed, executor);
}

std::string RunWeights::base_digest() const { return base_ ? weights_digest(*base_) : ""; }

}  // namespace heddle
