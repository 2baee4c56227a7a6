#include "train/weights.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/random.h"
#include "base/threads.h"
#include "formats/files.h"
#include "formats/json.h"
#include "models/model.h"

namespace heddle {
namespace {

constexpr std::int64_t kPiece = std::int64_t{1} << 16;     // elements that one thread converts at a time
constexpr std::int64_t kBuffered = std::int64_t{1} << 20;  // elements between file and memory: never a whole tensor

/// Buffers that old checkpoints carry and that are no parameters: masks and frequencies that are computed.
bool is_computed_buffer(const std::string& name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") || name.ends_with("rotary_emb.inv_freq");
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return Shape(std::span<const std::int64_t>(shape)).text();
}

/// Converts in parallel.
void convert_parallel(const void* source, DType source_type, void* target, DType target_type, std::int64_t count) {
  const auto* from = static_cast<const std::byte*>(source);
  auto* to = static_cast<std::byte*>(target);
  parallel_for((count + kPiece - 1) / kPiece, [&](std::int64_t piece, int) {
    const std::int64_t begin = piece * kPiece, size = std::min(kPiece, count - begin);
    const auto offset = static_cast<std::size_t>(begin);
    convert(from + offset * dtype_bytes(source_type), source_type, to + offset * dtype_bytes(target_type), target_type,
            size);
  });
}

/// Names in the file by the model's name: as they are, or without the base model's prefix throughout.
bool lacks_prefix(const WeightFolder& folder, const std::string& prefix) {
  const auto tensors = folder.tensors();
  return std::none_of(tensors.begin(), tensors.end(),
                      [&](const StoredTensor* tensor) { return tensor->name.starts_with(prefix); });
}

void write_file(const std::filesystem::path& path, const std::vector<const WeightSource::Entry*>& entries,
                const Executor& executor, std::optional<DType> dtype) {
  std::vector<SafetensorsWriter::Entry> header;
  for (const auto* entry : entries) {
    const Shape shape = executor.persistent(entry->parameter).shape;
    const auto extents = shape.extents();
    header.push_back({entry->name, dtype.value_or(entry->dtype), {extents.begin(), extents.end()}});
  }
  SafetensorsWriter writer(path, header, {{"format", "pt"}});
  std::vector<std::byte> piece;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const TensorView view = master_of(executor, entries[i]->parameter);
    const DType type = header[i].dtype;
    for (std::int64_t begin = 0; begin < view.elements(); begin += kBuffered) {
      const std::int64_t count = std::min(kBuffered, view.elements() - begin);
      piece.resize(static_cast<std::size_t>(count) * dtype_bytes(type));
      const auto* from =
          static_cast<const std::byte*>(view.data) + static_cast<std::size_t>(begin) * dtype_bytes(view.dtype);
      convert_parallel(from, view.dtype, piece.data(), type, count);
      writer.append(piece);
    }
  }
  writer.finish();
}

}  // namespace

WeightSource match_weights(const WeightFolder& folder, const Parameters& parameters, const ModelConfig& model) {
  WeightSource source;
  const std::string prefix = base_model_prefix(model);
  const bool short_names = lacks_prefix(folder, prefix);
  const auto name_in_file = [&](const std::string& name) {
    return short_names && name.starts_with(prefix) ? name.substr(prefix.size()) : name;
  };
  std::map<std::string, const Parameter*> by_name;
  for (const auto& parameter : parameters.list) by_name.emplace(name_in_file(parameter.name), &parameter);
  std::string missing;
  std::size_t missing_count = 0;
  for (const auto& parameter : parameters.list) {
    if (folder.find(name_in_file(parameter.name)) != nullptr) continue;
    if (missing_count++ == 0) missing = name_in_file(parameter.name);
  }
  const auto tensors = folder.tensors();
  const std::string where =
      tensors.empty() ? "the model folder" : std::filesystem::path(tensors[0]->file).parent_path().string();
  if (missing_count > 0) {
    fail("{}: tensor {} is missing{}; config.json asks for {} tensors", where, missing,
         missing_count > 1 ? fmt::format(" (and {} more)", missing_count - 1) : "", parameters.list.size());
  }
  for (const auto* tensor : tensors) {
    const auto found = by_name.find(tensor->name);
    if (found == by_name.end()) {
      if (is_computed_buffer(tensor->name)) continue;
      if (tensor->name == "lm_head.weight" && model.tie_word_embeddings) {
        note("{}: lm_head.weight is not read: config.json ties it to the input embedding", tensor->file);
        continue;
      }
      fail("{}: tensor {} is surplus: a {} model with this config.json has no such weight", tensor->file, tensor->name,
           model.model_type);
    }
    const Parameter& parameter = *found->second;
    if (!is_floating(tensor->dtype) || dtype_bytes(tensor->dtype) < 2) {
      fail("{}: tensor {} has type {}; expected F32, BF16, F16 or F64", tensor->file, tensor->name,
           safetensors_name(tensor->dtype));
    }
    if (Shape(std::span<const std::int64_t>(tensor->shape)) != parameter.shape) {
      fail("{}: tensor {} has shape {}; config.json says {}", tensor->file, tensor->name, shape_text(tensor->shape),
           parameter.shape.text());
    }
    source.entries.push_back(
        {parameter.name, tensor->name, tensor->dtype, std::filesystem::path(tensor->file).filename().string()});
  }
  source.is_sharded = !folder.weight_map().empty();
  return source;
}

TensorView master_of(const Executor& executor, const std::string& parameter) {
  const std::string master = master_label(parameter);
  return executor.has_persistent(master) ? executor.persistent(master) : executor.persistent(parameter);
}

void load_weights(const WeightFolder& folder, const WeightSource& source, const Parameters& parameters,
                  Executor& executor) {
  std::vector<std::byte> piece;  // aligned, and read rather than mapped: a file that shrinks is an error, not a signal
  for (const auto& entry : source.entries) {
    const StoredTensor& tensor = *folder.find(entry.name);
    const TensorView target = master_of(executor, entry.parameter);
    for (std::int64_t begin = 0; begin < target.elements(); begin += kBuffered) {
      const std::int64_t count = std::min(kBuffered, target.elements() - begin);
      const auto offset = static_cast<std::size_t>(begin);
      piece.resize(static_cast<std::size_t>(count) * dtype_bytes(tensor.dtype));
      folder.read(tensor, offset * dtype_bytes(tensor.dtype), piece);
      convert_parallel(piece.data(), tensor.dtype,
                       static_cast<std::byte*>(target.data) + offset * dtype_bytes(target.dtype), target.dtype, count);
    }
  }
  round_master_weights(parameters, executor);
}

void initialize_weights(const Parameters& parameters, std::uint64_t seed, Executor& executor) {
  for (std::size_t index = 0; index < parameters.list.size(); ++index) {
    const Parameter& parameter = parameters.list[index];
    const TensorView target = master_of(executor, parameter.name);
    const auto& rule = parameter.initialization;
    const std::int64_t count = target.elements();
    parallel_for((count + kPiece - 1) / kPiece, [&](std::int64_t piece, int) {
      Random random(seed, (std::uint64_t{index} << 32) + static_cast<std::uint64_t>(piece));
      for (std::int64_t i = piece * kPiece; i < std::min(count, (piece + 1) * kPiece); ++i) {
        float value = 0.0f;
        if (rule.kind == Initialization::Kind::ones) value = 1.0f;
        if (rule.kind == Initialization::Kind::normal)
          value = static_cast<float>(random.normal() * rule.standard_deviation);
        convert(&value, DType::f32,
                static_cast<std::byte*>(target.data) + static_cast<std::size_t>(i) * dtype_bytes(target.dtype),
                target.dtype, 1);
      }
    });
  }
  round_master_weights(parameters, executor);
}

void round_master_weights(const Parameters& parameters, Executor& executor) {
  for (const auto& parameter : parameters.list) {
    const std::string master = master_label(parameter.name);
    if (!executor.has_persistent(master)) continue;
    const TensorView from = executor.persistent(master), to = executor.persistent(parameter.name);
    convert_parallel(from.data, from.dtype, to.data, to.dtype, from.elements());
  }
}

WeightSource fresh_source(const Parameters& parameters, DType dtype) {
  WeightSource source;
  for (const auto& parameter : parameters.list) {
    source.entries.push_back({parameter.name, parameter.name, dtype, "model.safetensors"});
  }
  return source;
}

void export_weights(const std::filesystem::path& folder, const WeightSource& source, const Parameters& parameters,
                    const Executor& executor, std::optional<DType> dtype) {
  (void)parameters;
  std::map<std::string, std::vector<const WeightSource::Entry*>> files;
  for (const auto& entry : source.entries) files[entry.file].push_back(&entry);
  for (const auto& [file, entries] : files) write_file(folder / file, entries, executor, dtype);
  if (!source.is_sharded) return;
  Json map = Json::object();
  std::uint64_t total = 0;
  for (const auto& entry : source.entries) {
    map[entry.name] = entry.file;
    total += static_cast<std::uint64_t>(executor.persistent(entry.parameter).elements()) *
             dtype_bytes(dtype.value_or(entry.dtype));
  }
  write_text_file(folder / "model.safetensors.index.json",
                  Json{{"metadata", {{"total_size", total}}}, {"weight_map", map}}.dump(2) + "\n");
}

}  // namespace heddle
