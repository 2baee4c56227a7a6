#include "train/weights.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/random.h"
#include "base/threads.h"
#include "kernels/cpu/draw_normal.h"
#include "models/model.h"
#include "quantize/four_bit.h"
#include "train/decoded_tensor.h"
#include "train/local_state.h"
#include "train/parallel_convert.h"

namespace heddle {
namespace {

constexpr std::int64_t kPiece = std::int64_t{1} << 16;             // elements of one random stream, drawn by one thread
constexpr std::uint64_t kAdapterStreams = std::uint64_t{1} << 31;  // far from those of base weights
constexpr std::int64_t kBuffered = std::int64_t{1} << 20;  // elements between file and memory: never a whole tensor

/// Buffers that old checkpoints carry and that are no parameters: masks and frequencies that are computed.
bool is_computed_buffer(const std::string& name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") || name.ends_with("rotary_emb.inv_freq");
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return Shape(std::span<const std::int64_t>(shape)).text();
}

/// Names in the file by the model's name: as they are, or without the base model's prefix throughout.
bool lacks_prefix(const WeightFiles& files, const std::string& prefix) {
  const auto tensors = files.tensors();
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
void fill(Executor& executor, const std::vector<LocalTensor>& tensors, std::int64_t begin, std::int64_t end,
          const void* source, DType source_type, Convert convert_elements) {
  for (const auto& tensor : tensors) {
    const std::int64_t first = std::max(begin, tensor.begin), last = std::min(end, tensor.end);
    if (first >= last) continue;
    const DType type = tensor.values.dtype;
    const auto target = bytes_of(tensor.values)
                            .subspan(static_cast<std::size_t>(first - tensor.begin) * dtype_bytes(type),
                                     static_cast<std::size_t>(last - first) * dtype_bytes(type));
    convert_elements(
        static_cast<const std::byte*>(source) + static_cast<std::size_t>(first - begin) * dtype_bytes(source_type),
        source_type, target.data(), type, last - first);
    executor.filled(target);
  }
}

/// Whether PEFT saved a tensor besides what an adapter trains: the base's own table under an adapter of it, and where
/// the vocabulary was resized, or is tied, what modules_to_save holds once more.
bool is_repeated(const StoredTensor& tensor, const LoraModules& modules) {
  if (!is_adapter_weight(tensor.name)) return false;
  if (modules.config().ensure_weight_tying && tensor.name == modules.saved_name(std::string(kHeadWeight))) return true;
  const std::string module = module_of(tensor.name).substr(kAdapterPrefix.size() - 1);  // from a dot on
  if (tensor.name.ends_with(kTokenRows)) {  // of a head that is tied: the embedding's
    const auto* rows = modules.token_rows(module.substr(1, module.rfind('.') - 1));
    return rows != nullptr && rows->weight != tensor.name;
  }
  if (module.ends_with(".token_adapter.base_layer")) {
    note("{}: {} is not read: it is the base model's", tensor.file, tensor.name);
    return true;
  }
  const auto owner_of = [&](std::string_view end) {
    return module.ends_with(end) ? module.substr(1, module.size() - end.size() - 1) : std::string();
  };
  if (const std::string owner = owner_of(".base_layer"); !owner.empty() && modules.has_adapter(owner)) {
    note("{}: {} is not read: it is the base model's", tensor.file, tensor.name);
    return true;
  }
  const std::string saved = owner_of(".modules_to_save"), original = owner_of(".original_module");
  const std::string& owner = saved.empty() ? original : saved;
  return !owner.empty() && modules.trains(owner + ".weight");
}

struct NamedParameter {
  std::string name;  ///< in the file
  const Parameter* parameter;
};

/// Checks that the files hold exactly the parameters, but for what `is_passed_over`. `config` is what asks for them,
/// `owner` what has no others.
template <typename IsPassedOver>
WeightSource match(const WeightFiles& files, const std::vector<NamedParameter>& expected, std::string_view config,
                   const std::string& owner, IsPassedOver is_passed_over) {
  std::map<std::string, const Parameter*> by_name;
  std::string missing;
  std::size_t missing_count = 0;
  for (const auto& [name, parameter] : expected) {
    by_name.emplace(name, parameter);
    if (files.find(name) == nullptr && missing_count++ == 0) missing = name;
  }
  const auto tensors = files.tensors();
  const std::string where =
      tensors.empty() ? "the model folder" : std::filesystem::path(tensors[0]->file).parent_path().string();
  if (missing_count > 0) {
    fail("{}: tensor {} is missing{}; {} asks for {} tensors", where, missing,
         missing_count > 1 ? fmt::format(" (and {} more)", missing_count - 1) : "", config, expected.size());
  }
  WeightSource source;
  for (const auto* tensor : tensors) {
    const auto found = by_name.find(tensor->name);
    if (found == by_name.end()) {
      if (is_passed_over(*tensor)) continue;
      fail("{}: tensor {} is surplus: {} has no such weight", tensor->file, tensor->name, owner);
    }
    const Parameter& parameter = *found->second;
    const bool is_plain = is_floating(tensor->dtype) && dtype_bytes(tensor->dtype) >= 2;
    if (!is_plain && !is_quantized(tensor->dtype)) {
      fail("{}: tensor {} has type {}; expected F32, BF16, F16 or F64", tensor->file, tensor->name,
           safetensors_name(tensor->dtype));
    }
    if (Shape(std::span<const std::int64_t>(tensor->shape)) != parameter.shape) {
      fail("{}: tensor {} has shape {}; {} says {}", tensor->file, tensor->name, shape_text(tensor->shape), config,
           parameter.shape.text());
    }
    const std::filesystem::path file = std::filesystem::path(tensor->file).filename();
    source.entries.push_back({parameter.name, tensor->name, is_plain ? tensor->dtype : DType::f32,
                              file.extension() == ".safetensors" ? file.string() : "model.safetensors"});
  }
  source.is_sharded = !files.weight_map().empty();
  return source;
}

/// Calls use(begin, end) for pieces of the elements that any of the tensors holds, each a multiple of `block` but for
/// the last.
template <typename Use>
void for_each_held_piece(const std::vector<LocalTensor>& tensors, std::int64_t elements, std::int64_t block, Use use) {
  const auto [first, last] = hull_of(tensors);
  const std::int64_t step = std::max(block, kBuffered / block * block);
  for (std::int64_t begin = first / block * block; begin < last; begin += step) {
    const std::int64_t end = std::min({begin + step, (last + block - 1) / block * block, elements});
    if (holds_any(tensors, begin, end)) use(begin, end);
  }
}

void load_plain(const WeightFiles& files, const StoredTensor& stored, const std::vector<LocalTensor>& tensors,
                Executor& executor) {
  DecodedTensor decoded(files, stored);
  std::vector<std::byte> piece;  // aligned, and read rather than mapped: a file that shrinks is an error, not a signal
  std::vector<float> values;
  for_each_held_piece(tensors, decoded.elements(), block_elements(stored.dtype),
                      [&](std::int64_t begin, std::int64_t end) {
                        if (is_quantized(stored.dtype)) {
                          values.resize(static_cast<std::size_t>(end - begin));
                          decoded.read(begin, values);
                          return fill(executor, tensors, begin, end, values.data(), DType::f32, convert_parallel);
                        }
                        piece.resize(static_cast<std::size_t>(storage_bytes(stored.dtype, end - begin)));
                        files.read(stored, static_cast<std::uint64_t>(storage_bytes(stored.dtype, begin)), piece);
                        fill(executor, tensors, begin, end, piece.data(), stored.dtype, convert_parallel);
                      });
}

/// Of a tensor that stays as it lies in the file.
void load_bytes(const WeightFiles& files, const StoredTensor& stored, const std::vector<LocalTensor>& tensors) {
  for (const auto& tensor : tensors) {
    files.read(stored, static_cast<std::uint64_t>(tensor.begin),
               {static_cast<std::byte*>(tensor.values.data), static_cast<std::size_t>(tensor.end - tensor.begin)});
  }
}

/// Of a tensor that becomes four bits.
void load_encoded(const WeightFiles& files, const StoredTensor& stored, DType type,
                  const std::vector<LocalTensor>& tensors) {
  const auto encoded = encode_four_bit(files, stored, type);
  for (const auto& tensor : tensors) {
    std::copy(encoded.begin() + tensor.begin, encoded.begin() + tensor.end,
              static_cast<std::byte*>(tensor.values.data));
  }
}

/// Draws elements of a parameter from `first` of a piece on. A piece's numbers come from a stream of its own.
void draw(const Initialization& rule, std::uint64_t seed, std::uint64_t stream, std::int64_t first,
          std::span<float> values) {
  switch (rule.kind) {
    case Initialization::Kind::zeros: std::fill(values.begin(), values.end(), 0.0f); return;
    case Initialization::Kind::ones: std::fill(values.begin(), values.end(), 1.0f); return;
    case Initialization::Kind::normal: cpu::draw_normal(seed, stream, first, rule.spread, values); return;
    case Initialization::Kind::uniform: break;
  }
  Random random(seed, stream);
  for (std::int64_t i = 0; i < first; ++i) random.uniform();
  for (auto& value : values) value = static_cast<float>((2.0 * random.uniform() - 1.0) * rule.spread);
}

void initialize(const Parameters& parameters, std::uint64_t seed, bool of_adapter, const Sharding& sharding,
                Executor& executor) {
  std::uint64_t index = of_adapter ? kAdapterStreams : 0;
  for (const Parameter& parameter : parameters.list) {
    if (is_adapter_weight(parameter.name) != of_adapter) continue;
    if (parameter.is_quantized()) fail("{}: a model from scratch cannot be quantized", parameter.name);
    const std::uint64_t stream = index++ << 32;
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
      draw(parameter.initialization, seed, stream + static_cast<std::uint64_t>(piece), begin - piece * kPiece, drawn);
      fill(executor, tensors, begin, end, drawn.data(), DType::f32, convert);
    });
  }
}

}  // namespace

std::vector<std::byte> encode_four_bit(const WeightFiles& files, const StoredTensor& stored, DType type) {
  DecodedTensor decoded(files, stored);
  std::vector<std::byte> encoded(static_cast<std::size_t>(storage_bytes(type, decoded.elements())));
  FourBitEncoder encoder(type, decoded.elements(), encoded);
  decoded.for_each_piece(0, decoded.elements(), [&](std::int64_t begin, std::span<const float> values) {
    constexpr std::int64_t kEncoded = 16384;  // whole blocks, by one thread
    const auto count = static_cast<std::int64_t>(values.size());
    parallel_for((count + kEncoded - 1) / kEncoded, [&](std::int64_t index, int) {
      const std::int64_t from = index * kEncoded, taken = std::min(kEncoded, count - from);
      encoder.encode(begin + from, values.subspan(static_cast<std::size_t>(from), static_cast<std::size_t>(taken)));
    });
  });
  encoder.finish();
  return encoded;
}

WeightSource match_weights(const WeightFiles& files, const Parameters& parameters, const ModelConfig& model) {
  const std::string prefix = base_model_prefix(model);
  const bool short_names = lacks_prefix(files, prefix);
  std::vector<NamedParameter> expected;
  for (const auto& parameter : parameters.list) {
    if (is_adapter_weight(parameter.name)) continue;
    const bool is_short = short_names && parameter.name.starts_with(prefix);
    expected.push_back({is_short ? parameter.name.substr(prefix.size()) : parameter.name, &parameter});
  }
  const auto is_passed_over = [&](const StoredTensor& tensor) {
    if (is_computed_buffer(tensor.name)) return true;
    if (tensor.name != "lm_head.weight" || !model.tie_word_embeddings) return false;
    note("{}: lm_head.weight is not read: config.json ties it to the input embedding", tensor.file);
    return true;
  };
  const std::string owner = fmt::format("a {} model with this config.json", model.model_type);
  WeightSource source = match(files, expected, "config.json", owner, is_passed_over);
  for (auto& entry : source.entries) {  // what bitsandbytes quantized had the model's type before
    if (is_four_bit(files.find(entry.name)->dtype)) entry.dtype = dtype_from_torch(model.torch_dtype);
  }
  return source;
}

WeightSource match_adapter(const WeightFiles& files, const Parameters& parameters, const LoraModules& modules) {
  std::vector<NamedParameter> expected;
  for (const auto& parameter : parameters.list) {
    if (modules.trains(parameter.name)) expected.push_back({modules.saved_name(parameter.name), &parameter});
  }
  return match(files, expected, "adapter_config.json", "an adapter with this adapter_config.json",
               [&](const StoredTensor& tensor) { return is_repeated(tensor, modules); });
}

void load_weights(const WeightFiles& files, const WeightSource& source, const Parameters& parameters,
                  const Sharding& sharding, Executor& executor) {
  for (const auto& entry : source.entries) {
    const Parameter& parameter = *parameters.find(entry.parameter);
    const StoredTensor& stored = *files.find(entry.name);
    const auto tensors = loaded_tensors(executor, parameter, sharding);
    if (!parameter.is_quantized()) {
      load_plain(files, stored, tensors, executor);
    } else if (*parameter.storage == stored.dtype) {
      load_bytes(files, stored, tensors);
    } else {
      load_encoded(files, stored, *parameter.storage, tensors);
    }
  }
}

void initialize_weights(const Parameters& parameters, std::uint64_t seed, const Sharding& sharding,
                        Executor& executor) {
  initialize(parameters, seed, false, sharding, executor);
}

void initialize_adapter(const Parameters& parameters, std::uint64_t seed, const Sharding& sharding,
                        Executor& executor) {
  initialize(parameters, seed, true, sharding, executor);
}

WeightSource fresh_source(const Parameters& parameters, DType dtype) {
  WeightSource source;
  for (const auto& parameter : parameters.list) {
    if (is_adapter_weight(parameter.name)) continue;
    source.entries.push_back({parameter.name, parameter.name, dtype, "model.safetensors"});
  }
  return source;
}

WeightSource fresh_adapter_source(const Parameters& parameters, const LoraModules& modules) {
  WeightSource source;
  for (const auto& parameter : parameters.list) {
    if (!modules.trains(parameter.name)) continue;
    source.entries.push_back(
        {parameter.name, modules.saved_name(parameter.name), DType::f32, "adapter_model.safetensors"});
  }
  return source;
}

}  // namespace heddle
