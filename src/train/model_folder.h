#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "train/run_setup.h"
#include "train/weights.h"

namespace heddle {

/// Files of a model folder that training leaves as they are: tokenizer, templates, generation settings.
std::vector<std::filesystem::path> companion_files(const std::filesystem::path& folder);

/// Writes a Hugging Face model folder: config.json with every key it had, tokenizer files byte for byte, weights.
/// `torch_dtype` changes the type of the weights and the config's key for it.
void export_model(const std::filesystem::path& folder, const ModelSource& model, const std::string& tokenizer_name,
                  const WeightSource& weights, const Parameters& parameters, const Executor& executor,
                  const std::optional<std::string>& torch_dtype);

}  // namespace heddle
