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
#include "base/threads.h"
#include "checkpoint/checkpoint.h"
#include "formats/file_kind.h"
#include "formats/gguf.h"
#include "models/gguf_config.h"
#include "models/gguf_names.h"
#include "quantize/decode.h"
#include "quantize/four_bit.h"
#include "train/compile.h"
#include "train/decoded_tensor.h"
#include "train/gguf_export_model.h"
#include "train/gguf_export_tokenizer.h"
#include "train/weights.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kPiece = std::int64_t{1} << 20;  // elements between the files: whole blocks of every type

/// A tensor on its way from the model's files into the GGUF file.
struct Planned {
  const StoredTensor* source;
  GgufName gguf;
  DType dtype;
  std::vector<std::int64_t> shape;  // in the GGUF file
};

std::int64_t elements_of(const std::vector<std::int64_t>& shape) {
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) product *= extent;
  return product;
}

/// What llama.cpp computes with in fp32.
bool is_always_f32(const std::string& name, std::size_t dimensions) {
  return dimensions < 2 || !name.ends_with(".weight") || name.ends_with("_norm.weight") ||
         name == "position_embd.weight";
}

/// `decoded` is the type of what bitsandbytes' types, which GGUF does not have, become.
DType target_type(const Planned& tensor, std::optional<DType> type, DType decoded) {
  if (is_always_f32(tensor.gguf.name, tensor.shape.size())) return DType::f32;
  DType wanted = type.value_or(is_four_bit(tensor.source->dtype) ? decoded : tensor.source->dtype);
  if (wanted == DType::f64) wanted = DType::f32;
  if (tensor.shape.back() % block_elements(wanted) == 0) return wanted;
  note("{}: has rows of {} elements, no blocks of {}: written as F16", tensor.gguf.name, tensor.shape.back(),
       safetensors_name(wanted));
  return DType::f16;
}

/// The tensors in the order in which the model uses them.
std::vector<Planned> plan_tensors(const ModelSource& model, const WeightFiles& files, std::optional<DType> type) {
  const CompiledRun compiled = compile_evaluation(model.config, WeightRules(), DType::f32, {1, 1}, 1, 1);
  const WeightSource source = match_weights(files, compiled.parameters, model.config);
  std::map<std::string_view, const StoredTensor*> stored;
  for (const auto& entry : source.entries) stored.emplace(entry.parameter, files.find(entry.name));
  std::vector<Planned> planned;
  for (const auto& parameter : compiled.parameters.list) {
    const auto name = to_gguf_name(model.config.model_type, parameter.name);
    if (!name) fail("{}: tensor {} has no name in GGUF", model.config_path.string(), parameter.name);
    const StoredTensor* tensor = stored.at(parameter.name);
    Planned plan{tensor, *name, DType::f32, tensor->shape};
    if (name->change == GgufChange::transpose) std::swap(plan.shape.at(0), plan.shape.at(1));
    plan.dtype = target_type(plan, type, dtype_from_torch(model.config.torch_dtype));
    planned.push_back(std::move(plan));
  }
  return planned;
}

class TensorWriter {
 public:
  TensorWriter(const WeightFiles& files, std::int64_t head_dim, GgufWriter& writer)
      : files_(files), head_dim_(head_dim), writer_(writer) {}

  void write(const Planned& tensor) {
    try {
      switch (tensor.gguf.change) {
        case GgufChange::none: return write_pieces(tensor, kPiece);
        case GgufChange::pair_rows: return write_pieces(tensor, head_dim_ * columns_of(tensor));
        case GgufChange::add_one: return write_pieces(tensor, kPiece);
        case GgufChange::transpose: return write_transposed(tensor);
      }
    } catch (const Error& error) {
      fail("{}: {}", tensor.gguf.name, error.what());
    }
  }

 private:
  static std::int64_t columns_of(const Planned& tensor) {
    return tensor.shape.size() < 2 ? 1 : tensor.shape.back();  // a bias has a row for each element
  }

  /// Pieces of `step` elements; where rows are paired, each is one head's.
  void write_pieces(const Planned& tensor, std::int64_t step) {
    const StoredTensor& source = *tensor.source;
    const std::int64_t elements = elements_of(tensor.shape), columns = columns_of(tensor);
    const bool pairs = tensor.gguf.change == GgufChange::pair_rows;
    const bool is_copied = source.dtype == tensor.dtype && tensor.gguf.change != GgufChange::add_one;
    DecodedTensor decoded(files_, source);
    for (std::int64_t begin = 0; begin < elements; begin += step) {
      const std::int64_t count = std::min(step, elements - begin);
      if (is_copied) {
        bytes_.resize(static_cast<std::size_t>(storage_bytes(source.dtype, count)));
        files_.read(source, static_cast<std::uint64_t>(storage_bytes(source.dtype, begin)), bytes_);
        if (pairs) pair_rows(bytes_, storage_bytes(source.dtype, columns));
        writer_.append(bytes_);
        continue;
      }
      values_.resize(static_cast<std::size_t>(count));
      decoded.read(begin, values_);
      if (pairs) pair_rows(values_, columns);
      if (tensor.gguf.change == GgufChange::add_one) {
        for (float& value : values_) value += 1.0f;
      }
      append_encoded(tensor.dtype, values_);
    }
  }

  /// Of one head, of `width` values each.
  template <typename T>
  void pair_rows(std::vector<T>& rows, std::int64_t width) const {
    const std::vector<T> before = rows;
    for (std::int64_t row = 0; row < head_dim_; ++row) {
      std::copy_n(before.begin() + row * width, width, rows.begin() + paired_row(row, head_dim_) * width);
    }
  }

  void write_transposed(const Planned& tensor) {
    const StoredTensor& source = *tensor.source;
    const std::int64_t rows = source.shape.at(0), columns = source.shape.at(1);
    std::vector<float> all(static_cast<std::size_t>(rows * columns)), turned(all.size());
    DecodedTensor(files_, source).read(0, all);
    parallel_for(columns, [&](std::int64_t column, int) {
      for (std::int64_t row = 0; row < rows; ++row) {
        turned[static_cast<std::size_t>(column * rows + row)] = all[static_cast<std::size_t>(row * columns + column)];
      }
    });
    for (std::size_t begin = 0; begin < turned.size(); begin += static_cast<std::size_t>(kPiece)) {
      append_encoded(tensor.dtype, std::span(turned).subspan(
                                       begin, std::min(static_cast<std::size_t>(kPiece), turned.size() - begin)));
    }
  }

  void append_encoded(DType type, std::span<const float> values) {
    constexpr float kGreatestHalf = 65504.0f;
    if (type == DType::f16) {
      for (const float value : values) {
        if (std::isfinite(value) && std::fabs(value) > kGreatestHalf) {
          fail("holds {}, beyond the range of F16; --type bf16 or f32 keeps it", value);
        }
      }
    }
    const auto count = static_cast<std::int64_t>(values.size());
    encoded_.resize(static_cast<std::size_t>(storage_bytes(type, count)));
    encode(type, values.data(), count, encoded_.data());
    writer_.append(encoded_);
  }

  const WeightFiles& files_;
  std::int64_t head_dim_;
  GgufWriter& writer_;
  std::vector<std::byte> bytes_, encoded_;
  std::vector<float> values_;
};

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
  fs::path path = fs::absolute(model.folder).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // FOLDER/
  const std::string name = model.is_gguf ? path.stem().string() : path.filename().string();
  const bool is_named = name.find("hi-3") != std::string::npos || name.find("hi3") != std::string::npos;
  const auto* tokens = tokenizer.texts("tokenizer.ggml.tokens");
  const bool is_phi3 = model.config.model_type == "phi3" && tokens != nullptr &&
                       std::find(tokens->begin(), tokens->end(), "<|endoftext|>") != tokens->end();
  return is_phi3 && !is_named ? "Phi-3 " + name : name;
}

GgufMetadata make_metadata(const ModelSource& model, const fs::path& path, const std::vector<Planned>& tensors) {
  GgufMetadata metadata(path.string());
  const GgufMetadata tokenizer = tokenizer_keys(model, path.string());
  const std::string architecture(*gguf_architecture(model.config.model_type));
  metadata.add("general.architecture", architecture);
  metadata.add("general.type", "model");
  metadata.add("general.name", name_of(model, tokenizer));
  std::int64_t parameters = 0;
  std::optional<DType> common;
  bool is_mixed = false;
  for (const Planned& tensor : tensors) {
    parameters += elements_of(tensor.shape);
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

void export_gguf(const ModelSource& model, const fs::path& path, std::optional<DType> type) {
  if (!gguf_architecture(model.config.model_type)) {
    fail("{}: model_type {} has no architecture in GGUF", model.config_path.string(), model.config.model_type);
  }
  if (!model.adapter_folder.empty()) {
    fail("{}: is an adapter; --format hf merges it into its base, which can then be written as GGUF",
         model.adapter_folder.string());
  }
  const auto files = open_weights(model);
  if (!type && is_checkpoint(model.folder)) type = dtype_from_torch(model.config.torch_dtype);
  const std::vector<Planned> tensors = plan_tensors(model, *files, type);
  const GgufMetadata metadata = make_metadata(model, path, tensors);
  const auto factors = gguf_rope_factors(model.config);

  std::vector<GgufWriter::Entry> entries;
  entries.reserve(factors.size() + tensors.size());
  for (const auto& factor : factors) {
    entries.push_back({factor.name, DType::f32, {static_cast<std::int64_t>(factor.values.size())}});
  }
  for (const Planned& tensor : tensors) entries.push_back({tensor.gguf.name, tensor.dtype, tensor.shape});
  GgufWriter writer(path, metadata, entries);
  for (const auto& factor : factors) writer.append(std::as_bytes(std::span(factor.values)));
  TensorWriter tensor_writer(*files, model.config.head_dim, writer);
  for (const Planned& tensor : tensors) tensor_writer.write(tensor);
  check_means_the_same(model, writer.unfinished_path(), path);
  writer.finish();
}

}  // namespace heddle
