#include "train/weights.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/random.h"
#include "base/threads.h"
#include "models/model.h"
#include "train/local_state.h"
#include "train/parallel_convert.h"

namespace heddle {
namespace {

constexpr std::int64_t kPiece = std::int64_t{1} << 16;     // elements of one random stream, drawn by one thread
constexpr std::int64_t kBuffered = std::int64_t{1} << 20;  // elements between file and memory: never a whole tensor

/// Buffers that old checkpoints carry and that are no parameters: masks and frequencies that are computed.
bool is_computed_buffer(const std::string& name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") || name.ends_with("rotary_emb.inv_freq");
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return Shape(std::span<const std::int64_t>(shape)).text();
}

/// Names in the file by the model's name: as they are, or without the base model's prefix throughout.
bool lacks_prefix(const WeightFolder& folder, const std::string& prefix) {
  const auto tensors = folder.tensors();
  return std::none_of(tensors.begin(), tensors.end(),
                      [&](const StoredTensor* tensor) { return tensor->name.starts_with(prefix); });
}

/// The elements from the first to the last that any of the tensors holds.
std::pair<std::int64_t, std::int64_t> hull_of(const std::vector<LocalTensor>& tensors) {
  std::int64_t begin = INT64_MAX, end = 0;
  for (const auto& tensor : tensors) {
    if (tensor.begin == tensor.end) continue;
    begin = std::min(begin, tensor.begin);
    end = std::max(end, tensor.end);
  }
  return {std::min(begin, end), end};
}

/// Whether any of the tensors holds some element of [begin, end).
bool holds_any(const std::vector<LocalTensor>& tensors, std::int64_t begin, std::int64_t end) {
  return std::any_of(tensors.begin(), tensors.end(), [&](const LocalTensor& tensor) {
    return std::max(begin, tensor.begin) < std::min(end, tensor.end);
  });
}

/// Elements [begin, end) of a tensor, given as `source`, into those of the tensors that hold them.
template <typename Convert>
void fill(const std::vector<LocalTensor>& tensors, std::int64_t begin, std::int64_t end, const void* source,
          DType source_type, Convert convert_elements) {
  for (const auto& tensor : tensors) {
    const std::int64_t first = std::max(begin, tensor.begin), last = std::min(end, tensor.end);
    if (first >= last) continue;
    const DType type = tensor.values.dtype;
    convert_elements(
        static_cast<const std::byte*>(source) + static_cast<std::size_t>(first - begin) * dtype_bytes(source_type),
        source_type,
        static_cast<std::byte*>(tensor.values.data) +
            static_cast<std::size_t>(first - tensor.begin) * dtype_bytes(type),
        type, last - first);
  }
}

/// Draws the elements [begin, end) of a parameter, which lie in one piece. A piece's numbers come from a stream of its
/// own, so those before `begin` are drawn for nothing.
void draw(const Initialization& rule, Random random, std::int64_t before, std::span<float> values) {
  switch (rule.kind) {
    case Initialization::Kind::zeros: std::fill(values.begin(), values.end(), 0.0f); return;
    case Initialization::Kind::ones: std::fill(values.begin(), values.end(), 1.0f); return;
    case Initialization::Kind::normal: break;
  }
  for (std::int64_t i = 0; i < before; ++i) random.normal();
  for (auto& value : values) value = static_cast<float>(random.normal() * rule.standard_deviation);
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

void load_weights(const WeightFolder& folder, const WeightSource& source, const Parameters& parameters,
                  const Sharding& sharding, Executor& executor) {
  std::vector<std::byte> piece;  // aligned, and read rather than mapped: a file that shrinks is an error, not a signal
  for (const auto& entry : source.entries) {
    const StoredTensor& stored = *folder.find(entry.name);
    const auto tensors = loaded_tensors(executor, *parameters.find(entry.parameter), sharding);
    const auto [first, last] = hull_of(tensors);
    for (std::int64_t begin = first; begin < last; begin += kBuffered) {
      const std::int64_t end = std::min(begin + kBuffered, last);
      if (!holds_any(tensors, begin, end)) continue;
      piece.resize(static_cast<std::size_t>(end - begin) * dtype_bytes(stored.dtype));
      folder.read(stored, static_cast<std::uint64_t>(begin) * dtype_bytes(stored.dtype), piece);
      fill(tensors, begin, end, piece.data(), stored.dtype, convert_parallel);
    }
  }
}

void initialize_weights(const Parameters& parameters, std::uint64_t seed, const Sharding& sharding,
                        Executor& executor) {
  for (std::size_t index = 0; index < parameters.list.size(); ++index) {
    const Parameter& parameter = parameters.list[index];
    const auto tensors = loaded_tensors(executor, parameter, sharding);
    const auto [first, last] = hull_of(tensors);
    const std::int64_t first_piece = first / kPiece;
    parallel_for((last + kPiece - 1) / kPiece - first_piece, [&, begin_of_all = first, end_of_all = last](
                                                                 std::int64_t offset, int) {
      const std::int64_t piece = first_piece + offset;
      const std::int64_t begin = std::max(begin_of_all, piece * kPiece);
      const std::int64_t end = std::min(end_of_all, (piece + 1) * kPiece);
      if (!holds_any(tensors, begin, end)) return;
      thread_local std::vector<float> values(kPiece);
      const auto drawn = std::span(values).first(static_cast<std::size_t>(end - begin));
      draw(parameter.initialization, Random(seed, (std::uint64_t{index} << 32) + static_cast<std::uint64_t>(piece)),
           begin - piece * kPiece, drawn);
      fill(tensors, begin, end, drawn.data(), DType::f32, convert);
    });
  }
}

WeightSource fresh_source(const Parameters& parameters, DType dtype) {
  WeightSource source;
  for (const auto& parameter : parameters.list) {
    source.entries.push_back({parameter.name, parameter.name, dtype, "model.safetensors"});
  }
  return source;
}

}  // namespace heddle
