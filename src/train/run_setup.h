#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "comm/communicator.h"
#include "config/run_config.h"
#include "data/chat_template.h"
#include "data/dataset.h"
#include "data/tokenizer.h"
#include "formats/safetensors.h"
#include "models/model_config.h"
#include "train/compile.h"

namespace heddle {

/// Where what can be made again is kept, unless the run file says otherwise: beside other programs' caches. Empty where
/// neither XDG_CACHE_HOME nor HOME is set.
std::filesystem::path default_cache_folder();

/// A model as a command names it: a Hugging Face folder, a GGUF file, a checkpoint, or a bare config.json.
struct ModelSource {
  ModelConfig config;
  std::string config_text;            ///< config.json byte for byte, but for a quantization_config, which is left out;
                                      ///< of a GGUF file: the one that says the same
  std::filesystem::path config_path;  ///< what names the config in messages
  std::filesystem::path folder;       ///< where weights lie; of a GGUF file: the file
  std::filesystem::path
      tokenizer_folder;      ///< where tokenizer and template lie: `folder`, unless an adapter has its own
  bool has_weights = false;  ///< open_weights() finds some
  bool is_gguf = false;
  bool is_bitsandbytes = false;               ///< its weights lie in four bits (train/bitsandbytes_weights.h)
  bool is_resized = false;                    ///< the config has another vocab_size than the files (train/vocabulary.h)
  std::filesystem::path adapter_folder = {};  ///< of the adapter that the path named; all else is then its base model's
};

/// `path` is a folder with config.json, a GGUF file, or a config.json. Throws Error naming the path. Reads no weight.
ModelSource open_model(const std::filesystem::path& path);

/// The weights of a model that has some, whatever kind of file holds them. A checkpoint's are verified first, which
/// reads them whole; ranks that open one together divide that among them. Throws Error for a damaged file.
std::unique_ptr<WeightFiles> open_weights(const ModelSource& model);
std::unique_ptr<WeightFiles> open_weights(const ModelSource& model, Communicator& communicator);

/// The run file's model: model_name_or_path, or config_name for one from scratch.
ModelSource open_run_model(const RunConfig& run);

/// The tokenizer that the run names, or that lies in ModelSource::folder; null if there is none.
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& tokenizer_name, const std::filesystem::path& model_folder);
/// The chat template that goes with this tokenizer; none if there is none.
std::optional<ChatTemplate> open_chat_template(const std::string& tokenizer_name,
                                               const std::filesystem::path& model_folder);

/// Data of a run, tokenized.
struct RunData {
  std::unique_ptr<Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat_template;
  std::optional<Dataset> train, validation;
};
RunData load_run_data(const RunConfig& run, const ModelSource& model);

BatchSchedule::Options batch_options(const RunConfig& run);
StreamCapacity capacity_of(const Dataset& dataset, const BatchSchedule::Options& options);

/// Whether the run holds some weights in the types that their files have, so that it cannot be compiled without these.
/// Any other is compiled, and refused where it does not fit, before there is a weight.
bool needs_weight_types(const RunConfig& run, const ModelSource& model);

/// Programs for a run whose data is loaded; without training data, for full rows of max_length. `weights` may be null
/// unless needs_weight_types().
CompiledRun compile_run(const RunConfig& run, const ModelSource& model, const WeightFiles* weights, const RunData& data,
                        int rank = 0);

}  // namespace heddle
