#include "train/gguf_export.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "formats/file_kind.h"
#include "formats/gguf.h"
#include "models/gguf_config.h"
#include "models/gguf_names.h"
#include "quantize/decode.h"
#include "quantize/four_bit.h"
#include "train/compile.h"
#include "train/gguf_export_model.h"
#include "train/gguf_export_tokenizer.h"
#include "train/gguf_tensor_writer.h"
#include "train/weights.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

/// What llama.cpp computes with in fp32.
bool is_always_f32(const std::string& name, std::size_t dimensions) {
  return dimensions < 2 || !name.ends_with(".weight") || name.ends_with("_norm.weight") ||
         name == "position_embd.weight";
}

/// `decoded` is the type of what bitsandbytes' types, which GGUF does not have, become.
DType target_type(const GgufTensorPlan& tensor, std::optional<DType> type, DType decoded) {
  if (is_always_f32(tensor.gguf.name, tensor.shape.size())) return DType::f32;
  const DType wanted = type.value_or(is_four_bit(tensor.source->dtype) ? decoded : tensor.source->dtype);
  return wanted == DType::f64 ? DType::f32 : wanted;
}

/// The tensors in the order in which the model uses them.
std::vector<GgufTensorPlan> plan_tensors(const MergedModel& merged, std::optional<DType> type) {
  const ModelSource& model = merged.source();
  const CompiledRun compiled = compile_evaluation(model.config, WeightRules(), DType::f32, {1, 1}, 1, 1);
  const WeightSource source = match_weights(merged.base(), compiled.parameters, model.config);
  std::map<std::string_view, const StoredTensor*> stored;
  for (const auto& entry : source.entries) stored.emplace(entry.parameter, merged.base().find(entry.name));
  std::vector<GgufTensorPlan> planned;
  std::vector<std::string> uneven;
  for (const auto& parameter : compiled.parameters.list) {
    const auto name = to_gguf_name(model.config.model_type, parameter.name);
    if (!name) fail("{}: tensor {} has no name in GGUF", model.config_path.string(), parameter.name);
    const StoredTensor* tensor = stored.at(parameter.name);
    GgufTensorPlan plan{parameter.name, tensor, *name, DType::f32, tensor->shape};
    if (name->change == GgufChange::transpose) std::swap(plan.shape.at(0), plan.shape.at(1));
    plan.dtype = target_type(plan, type, dtype_from_torch(model.config.torch_dtype));
    if (plan.shape.back() % block_elements(plan.dtype) != 0) {
      uneven.push_back(fmt::format("{} ({})", plan.gguf.name, plan.shape.back()));
      plan.dtype = DType::f16;
    }
    if (merged.changes(parameter.name) && !has_encoder(plan.dtype)) {
      fail("{}: is {} in the base, which merged weights cannot be written in; --type names another, such as q8_0",
           name->name, safetensors_name(plan.dtype));
    }
    planned.push_back(std::move(plan));
  }
  if (!uneven.empty()) {
    note("{} matri{} written as F16, as their rows are no whole blocks: {}{}", uneven.size(),
         uneven.size() == 1 ? "x is" : "ces are", uneven.front(), uneven.size() == 1 ? "" : ", ...");
  }
  return planned;
}

/// llama.cpp's number for a file whose matrices have that type; for mixtures and others none.
std::optional<std::uint64_t> file_type(DType type) {
  constexpr std::array<std::pair<DType, std::uint64_t>, 9> kNumbers = {{{DType::f32, 0},
                                                                        {DType::f16, 1},
                                                                        {DType::q4_0, 2},
                                                                        {DType::q4_1, 3},
                                                                        {DType::q8_0, 7},
                                                                        {DType::q5_0, 8},
                                                                        {DType::q5_1, 9},
                                                                        {DType::iq4_nl, 25},
                                                                        {DType::bf16, 32}}};
  for (const auto& [known, number] : kNumbers) {
    if (known == type) return number;
  }
  return std::nullopt;
}

/// "135M", "1.1B", as the names of published models have it.
std::string size_label(std::int64_t parameters) {
  constexpr std::array<std::pair<double, char>, 4> kUnits = {{{1e12, 'T'}, {1e9, 'B'}, {1e6, 'M'}, {1e3, 'K'}}};
  const auto count = static_cast<double>(parameters);
  const auto* unit =
      std::find_if(kUnits.begin(), kUnits.end() - 1, [&](const auto& candidate) { return count >= candidate.first; });
  const double scaled = count / unit->first;
  return std::round(scaled) < 10 ? fmt::format("{:.1f}{}", scaled, unit->second)
                                 : fmt::format("{:.0f}{}", scaled, unit->second);
}

/// tokenizer.*: from the files of the folder, or as a GGUF file has them.
GgufMetadata tokenizer_keys(const ModelSource& model, const std::string& file) {
  GgufMetadata keys(file);
  if (!is_gguf_file(model.tokenizer_folder)) {
    add_gguf_tokenizer_keys(model.tokenizer_folder, model.config, keys);
    return keys;
  }
  const GgufFile source(model.tokenizer_folder);
  for (const auto& [key, value] : source.metadata().entries()) {
    if (key.starts_with("tokenizer.")) keys.add(key, value);
  }
  return keys;
}

/// By the folder. Of Phi-3 it must be in the name what it is: llama.cpp knows by that how its special tokens behave.
std::string name_of(const ModelSource& model, const GgufMetadata& tokenizer) {
  // Of a merged model, after the adapter: it is no longer its base.
  fs::path path = fs::absolute(model.adapter_folder.empty() ? model.folder : model.adapter_folder).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // FOLDER/
  const std::string name = model.is_gguf ? path.stem().string() : path.filename().string();
  const bool is_named = name.find("hi-3") != std::string::npos || name.find("hi3") != std::string::npos;
  const auto* tokens = tokenizer.texts("tokenizer.ggml.tokens");
  const bool is_phi3 = model.config.model_type == "phi3" && tokens != nullptr &&
                       std::find(tokens->begin(), tokens->end(), "<|endoftext|>") != tokens->end();
  return is_phi3 && !is_named ? "Phi-3 " + name : name;
}

GgufMetadata make_metadata(const ModelSource& model, const fs::path& path, const std::vector<GgufTensorPlan>& tensors) {
  GgufMetadata metadata(path.string());
  const GgufMetadata tokenizer = tokenizer_keys(model, path.string());
  const std::string architecture(*gguf_architecture(model.config.model_type));
  metadata.add("general.architecture", architecture);
  metadata.add("general.type", "model");
  metadata.add("general.name", name_of(model, tokenizer));
  std::int64_t parameters = 0;
  std::optional<DType> common;
  bool is_mixed = false;
  for (const GgufTensorPlan& tensor : tensors) {
    parameters += tensor.elements();
    if (is_always_f32(tensor.gguf.name, tensor.shape.size())) continue;
    is_mixed = is_mixed || (common && *common != tensor.dtype);
    common = tensor.dtype;
  }
  metadata.add("general.size_label", size_label(parameters));
  if (const auto number = common && !is_mixed ? file_type(*common) : std::nullopt) {
    metadata.add("general.file_type", *number);
  }
  metadata.add("general.quantization_version", std::uint64_t{2});
  add_gguf_model_keys(model.config, architecture, metadata);
  for (const auto& [key, value] : tokenizer.entries()) metadata.add(key, value);
  return metadata;
}

/// The file is whole, but not yet under its name.
void check_means_the_same(const ModelSource& model, const fs::path& written, const fs::path& path) {
  const std::string text = gguf_model_config(GgufFile(written));
  const std::string difference = gguf_difference(model.config, parse_model_config(text, path.string()));
  if (!difference.empty()) {
    fail("{}: {} cannot be said in GGUF: the model would compute something else", model.config_path.string(),
         difference);
  }
}

}  // namespace

MergeReport export_gguf(const ModelSource& model, const fs::path& path, std::optional<DType> type) {
  if (!gguf_architecture(model.config.model_type)) {
    fail("{}: model_type {} has no architecture in GGUF", model.config_path.string(), model.config.model_type);
  }
  if (!type && is_checkpoint(model.folder)) type = dtype_from_torch(model.config.torch_dtype);
  MergedModel merged(model);
  const ModelSource& source = merged.source();
  const std::vector<GgufTensorPlan> tensors = plan_tensors(merged, type);
  const GgufMetadata metadata = make_metadata(source, path, tensors);
  const auto factors = gguf_rope_factors(source.config);

  std::vector<GgufWriter::Entry> entries;
  entries.reserve(factors.size() + tensors.size());
  for (const auto& factor : factors) {
    entries.push_back({factor.name, DType::f32, {static_cast<std::int64_t>(factor.values.size())}});
  }
  for (const auto& tensor : tensors) entries.push_back({tensor.gguf.name, tensor.dtype, tensor.shape});
  GgufWriter writer(path, metadata, entries);
  for (const auto& factor : factors) writer.append(std::as_bytes(std::span(factor.values)));
  GgufTensorWriter tensor_writer(merged, writer);
  for (const auto& tensor : tensors) tensor_writer.write(tensor);
  check_means_the_same(source, writer.unfinished_path(), path);
  writer.finish();
  return merged.report();
}

}  // namespace heddle
