#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "formats/safetensors.h"
#include "models/lora.h"
#include "models/model_config.h"
#include "program/builder.h"
#include "program/partition.h"
#include "train/executor.h"

namespace heddle {

/// What a Hugging Face folder held, so that an export gives the same back: names, types, order, shards.
struct WeightSource {
  struct Entry {
    std::string parameter;  ///< the model's name
    std::string name;       ///< the name in the file
    DType dtype = DType::f32;
    std::string file;  ///< file name of its shard
  };
  std::vector<Entry> entries;
  bool is_sharded = false;
};

/// Checks that the folder holds exactly the model's tensors, with their shapes; throws Error naming what is missing,
/// surplus or misshapen. Reads no weight.
/// An adapter's weights are no part of it.
WeightSource match_weights(const WeightFiles& files, const Parameters& parameters, const ModelConfig& model);

/// The same of an adapter's file, which holds what the run trains and nothing else, by PEFT's names.
WeightSource match_adapter(const WeightFiles& files, const Parameters& parameters, const LoraModules& modules);

/// Reads what this rank holds of the weights (and master weights): only these bytes of the files.
/// Quantized weights are decoded, unless the run keeps them so; four bits are encoded on the way.
void load_weights(const WeightFiles& files, const WeightSource& source, const Parameters& parameters,
                  const Sharding& sharding, Executor& executor);

/// A tensor as `type` of four bits, whole: its scales lie behind its codes and have a mean of their own. Its values are
/// read in pieces.
std::vector<std::byte> encode_four_bit(const WeightFiles& files, const StoredTensor& stored, DType type);

/// Fresh weights by each parameter's rule, drawn from the seed and the parameter's place: the same numbers whatever
/// this rank holds of them, and with an adapter beside them or not.
void initialize_weights(const Parameters& parameters, std::uint64_t seed, const Sharding& sharding, Executor& executor);
/// The same of an adapter's weights.
void initialize_adapter(const Parameters& parameters, std::uint64_t seed, const Sharding& sharding, Executor& executor);

/// How a model from scratch is laid out: one file, every tensor in `dtype`.
WeightSource fresh_source(const Parameters& parameters, DType dtype);
/// The same of a fresh adapter.
WeightSource fresh_adapter_source(const Parameters& parameters, const LoraModules& modules);

/// Bytes that export_weights writes, headers left out.
std::uint64_t export_bytes(const WeightSource& source, const Parameters& parameters, std::optional<DType> dtype);

/// Writes model.safetensors (or the source's shards and index) into `folder`; `dtype` overrides the source's types.
/// Called by all ranks: each writes the elements that it owns, at their place; nothing is gathered, and the bytes do
/// not depend on the number of ranks. What is frozen is copied from `base`, from whose files it was loaded; null: there
/// is nothing frozen to write. The files appear under their names when all are whole; after a failure, which all
/// ranks throw, the old ones are left.
void export_weights(const std::filesystem::path& folder, const WeightSource& source, const Parameters& parameters,
                    const Sharding& sharding, const Executor& executor, std::optional<DType> dtype,
                    const WeightFiles* base, Communicator& communicator);

}  // namespace heddle
