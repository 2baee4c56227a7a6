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

/// The files of an adapter's folder besides its weights: adapter_config.json and the tokenizer.
std::vector<KeptFile> adapter_files(const ModelSource& model, const std::string& tokenizer_name,
                                    const LoraModules& adapter);

/// Those of them that lie in a folder as they are, config.json too.
std::vector<KeptFile> companion_files(const std::filesystem::path& folder);

/// Writes them.
void write_model_files(const std::filesystem::path& folder, const std::vector<KeptFile>& files);

/// Writes the folder of a model or an adapter: weights (in `torch_dtype`, if there is one) and files. Called by all
/// ranks, as export_weights, which says what `base` is; `files` are rank 0's.
void export_model(const std::filesystem::path& folder, const std::vector<KeptFile>& files, const WeightSource& weights,
                  const Parameters& parameters, const Sharding& sharding, const Executor& executor,
                  const std::optional<std::string>& torch_dtype, const WeightFiles* base, Communicator& communicator);

}  // namespace heddle
