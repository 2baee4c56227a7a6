#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/save.h"
#include "train/run_setup.h"
#include "train/weights.h"

namespace heddle {

/// The files of a trained model's folder besides its weights: config.json with every key that it had, tokenizer,
/// templates and generation settings byte for byte. `torch_dtype` changes the config's key for it.
std::vector<KeptFile> model_files(const ModelSource& model, const std::string& tokenizer_name,
                                  const std::optional<std::string>& torch_dtype);

/// Those of them that lie in a folder as they are, config.json too.
std::vector<KeptFile> companion_files(const std::filesystem::path& folder);

/// Writes them.
void write_model_files(const std::filesystem::path& folder, const std::vector<KeptFile>& files);

/// Writes a Hugging Face model folder: weights and model_files(). `torch_dtype` changes the type of the weights too.
/// Called by all ranks, as export_weights.
void export_model(const std::filesystem::path& folder, const ModelSource& model, const std::string& tokenizer_name,
                  const WeightSource& weights, const Parameters& parameters, const Sharding& sharding,
                  const Executor& executor, const std::optional<std::string>& torch_dtype, Communicator& communicator);

}  // namespace heddle
