#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "formats/safetensors.h"
#include "models/model_config.h"
#include "program/builder.h"
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
WeightSource match_weights(const WeightFolder& folder, const Parameters& parameters, const ModelConfig& model);

/// Reads the weights into the executor's buffers (and master weights).
void load_weights(const WeightFolder& folder, const WeightSource& source, const Parameters& parameters,
                  Executor& executor);

/// Fresh weights by each parameter's rule, drawn from (seed, name).
void initialize_weights(const Parameters& parameters, std::uint64_t seed, Executor& executor);

/// Rounds the master weights into the weights that the products read; nothing to do in fp32.
void round_master_weights(const Parameters& parameters, Executor& executor);

/// The fp32 values of a parameter: its master, or itself.
TensorView master_of(const Executor& executor, const std::string& parameter);

/// How a model from scratch is laid out: one file, every tensor in `dtype`.
WeightSource fresh_source(const Parameters& parameters, DType dtype);

/// Writes model.safetensors (or the source's shards and index) into `folder`; `dtype` overrides the source's types.
void export_weights(const std::filesystem::path& folder, const WeightSource& source, const Parameters& parameters,
                    const Executor& executor, std::optional<DType> dtype);

}  // namespace heddle
