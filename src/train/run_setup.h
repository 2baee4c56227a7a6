#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "config/run_config.h"
#include "data/dataset.h"
#include "data/tokenizer.h"
#include "models/model_config.h"
#include "train/compile.h"

namespace heddle {

/// Where what can be made again is kept, unless the run file says otherwise: beside other programs' caches. Empty where
/// neither XDG_CACHE_HOME nor HOME is set.
std::filesystem::path default_cache_folder();

/// A model as a command names it: a Hugging Face folder, or a bare config.json.
struct ModelSource {
  ModelConfig config;
  std::string config_text;  ///< config.json byte for byte
  std::filesystem::path config_path;
  std::filesystem::path folder;  ///< beside which tokenizer files lie
  bool has_weights = false;      ///< weights are to be read from the folder
};

/// `path` is a folder with config.json, or a config.json. Throws Error naming the path.
ModelSource open_model(const std::filesystem::path& path);

/// The run file's model: model_name_or_path, or config_name for one from scratch.
ModelSource open_run_model(const RunConfig& run);

/// The tokenizer that the run names, or that lies beside the model; null if there is none.
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& tokenizer_name, const std::filesystem::path& model_folder);

/// Data of a run, tokenized.
struct RunData {
  std::unique_ptr<Tokenizer> tokenizer;
  std::optional<Dataset> train, validation;
};
RunData load_run_data(const RunConfig& run, const ModelSource& model);

BatchSchedule::Options batch_options(const RunConfig& run);
StreamCapacity capacity_of(const Dataset& dataset, const BatchSchedule::Options& options);

/// Programs for a run whose data is loaded; without training data, for full rows of max_length.
CompiledRun compile_run(const RunConfig& run, const ModelSource& model, const RunData& data, int rank = 0);

}  // namespace heddle
