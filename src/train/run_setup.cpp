#include "train/run_setup.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/save.h"
#include "comm/job.h"
#include "data/token_limit.h"
#include "data/tokenizer/gguf_chat_template.h"
#include "data/tokenizer/gguf_tokenizer.h"
#include "formats/file_kind.h"
#include "formats/files.h"
#include "formats/json.h"
#include "models/gguf_config.h"
#include "models/gguf_weights.h"
#include "quantize/decode.h"
#include "train/bitsandbytes_weights.h"
#include "train/checkpoint_base.h"
#include "train/vocabulary.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

/// Small files are tokenized faster than a cache is looked up.
bool is_worth_a_cache(const std::vector<DataFile>& files) {
  constexpr std::uintmax_t kSmall = std::uintmax_t{1} << 20;
  std::uintmax_t bytes = 0;
  for (const auto& file : files) {
    std::error_code error;
    if (fs::is_directory(file.path, error)) return true;
    if (const auto size = fs::file_size(file.path, error); !error) bytes += size;
  }
  return bytes >= kSmall;
}

DatasetOptions dataset_options(const RunConfig& run, const std::vector<DataFile>& files, const ModelSource& model,
                               const std::optional<ChatTemplate>& chat_template) {
  DatasetOptions options;
  if (chat_template) options.chat_template = &*chat_template;
  options.labels = {run.assistant_only_loss, run.completion_only_loss, run.train_on_last};
  options.preference = run.trains_on_pairs();
  options.max_prompt_length = run.preference.max_prompt_length;
  options.keeps_end = run.preference.keeps_end;
  options.columns = run.columns;
  for (const auto& file : files) options.files.push_back({file.path, file.weight});
  options.max_length = run.max_length;
  options.packing = run.packing;
  options.skip_bad_rows = run.skip_bad_rows;
  options.add_bos = run.add_bos;
  options.add_eos = run.add_eos;
  options.vocab_size = static_cast<std::int32_t>(model.config.vocab_size);
  options.cache_folder = run.dataset_cache;
  if (run.dataset_cache.empty() && is_worth_a_cache(files)) options.cache_folder = default_cache_folder();
  return options;
}

}  // namespace

fs::path default_cache_folder() {
  if (const char* folder = std::getenv("XDG_CACHE_HOME"); folder != nullptr && *folder != '\0')
    return fs::path(folder) / "heddle";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0')
    return fs::path(home) / ".cache" / "heddle";
  return {};
}

namespace {

/// What is exported is not quantized.
std::string without_quantization(const std::string& config_text, const std::string& path) {
  Json config = parse_json(config_text, path);
  config.erase("quantization_config");
  return config.dump(2) + "\n";
}

ModelSource open_gguf_model(const fs::path& path) {
  ModelSource source;
  source.folder = source.tokenizer_folder = source.config_path = path;
  source.has_weights = source.is_gguf = true;
  const GgufFile file(path);
  source.config_text = gguf_model_config(file);
  source.config = parse_model_config(source.config_text, path.string());
  if (const auto count = decoded_matrices(file, source.config.model_type); count > 0) {
    note("{}: {} quantized matrices are decoded to fp32: a {} model has them transposed", path.string(), count,
         source.config.model_type);
  }
  return source;
}

std::unique_ptr<WeightFiles> open_stored_weights(const ModelSource& model, Communicator& communicator) {
  if (model.is_gguf) return std::make_unique<GgufWeights>(model.folder, model.config, decode);
  if (is_checkpoint(model.folder))
    return open_checkpoint_weights(open_checkpoint(model.folder, communicator), communicator);
  if (model.is_bitsandbytes) return open_bitsandbytes_folder(model.folder, model.config);
  return std::make_unique<WeightFolder>(model.folder);
}

constexpr std::array kTokenizerFiles = {"tokenizer.json", "tokenizer.model", "vocab.json"};

bool has_tokenizer(const fs::path& folder) {
  return std::any_of(kTokenizerFiles.begin(), kTokenizerFiles.end(),
                     [&](const char* name) { return fs::exists(folder / name); });
}

/// An adapter may bring tokens: its own tokenizer, and tables with their rows.
void take_from_adapter(ModelSource& base, const fs::path& adapter) {
  if (has_tokenizer(adapter)) base.tokenizer_folder = adapter;
  if (const auto rows = vocabulary_of_adapter(adapter, base.config); rows > 0) resize_vocabulary(base, rows);
}

}  // namespace

ModelSource open_model(const fs::path& path) {
  ModelSource source;
  std::error_code error;
  if (!fs::exists(path, error)) fail("{}: no such model folder, GGUF file or config.json", path.string());
  if (fs::is_directory(path)) {
    if (is_adapter_folder(path)) {
      source = open_model(base_of_adapter(path));
      source.adapter_folder = path;
      take_from_adapter(source, path);
      return source;
    }
    source.folder = path;
    source.config_path = path / "config.json";
    if (!fs::exists(source.config_path))
      fail("{}: has no config.json; expected a Hugging Face model folder", path.string());
    source.has_weights = true;
  } else {
    if (is_gguf_file(path)) return open_gguf_model(path);
    if (path.extension() != ".json") {
      fail("{}: is no model; expected a Hugging Face model folder, a GGUF file or a config.json", path.string());
    }
    source.folder = path.parent_path();
    source.config_path = path;
  }
  source.config_text = read_text_file(source.config_path);
  source.config = parse_model_config(source.config_text, source.config_path.string());
  source.is_bitsandbytes = source.config.is_bitsandbytes;
  if (source.is_bitsandbytes)
    source.config_text = without_quantization(source.config_text, source.config_path.string());
  source.tokenizer_folder = source.folder;
  return source;
}

std::unique_ptr<WeightFiles> open_weights(const ModelSource& model) { return open_weights(model, *alone()); }

std::unique_ptr<WeightFiles> open_weights(const ModelSource& model, Communicator& communicator) {
  if (!model.has_weights) fail("{}: expected a model with weights", model.config_path.string());
  auto files = open_stored_weights(model, communicator);
  return model.is_resized ? resized_weights(std::move(files), model) : std::move(files);
}
namespace {

/// Rows for all ids of the run's tokenizer. Those that are there stay, and so does a vocabulary that has them all.
void make_room(ModelSource& source, const RunConfig& run) {
  const auto tokenizer = open_tokenizer(run.tokenizer_name, source.tokenizer_folder);
  if (!tokenizer) fail("resize_token_embeddings: the model has no tokenizer; expected one in tokenizer_name");
  const std::int64_t before = source.config.vocab_size, needed = tokenizer->vocab_size();
  if (needed <= before) return;
  const std::int64_t step = run.pad_to_multiple_of;
  resize_vocabulary(source, (needed + step - 1) / step * step);
  note("the tokenizer has {} ids, the model {}: {} rows are added, each the mean of those that are there", needed,
       before, source.config.vocab_size - before);
}

}  // namespace

ModelSource open_run_model(const RunConfig& run) {
  if (!run.model_name_or_path.empty()) {
    ModelSource source = open_model(run.model_name_or_path);
    if (!source.adapter_folder.empty()) {
      fail("model_name_or_path is {}, an adapter; expected its base model, and the adapter in adapter_name_or_path",
           run.model_name_or_path);
    }
    if (!run.adapter_name_or_path.empty()) take_from_adapter(source, run.adapter_name_or_path);
    if (run.resize_token_embeddings) make_room(source, run);
    return source;
  }
  ModelSource source = open_model(run.config_name);
  source.has_weights = false;
  if (run.resize_token_embeddings) make_room(source, run);
  return source;
}

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& tokenizer_name, const fs::path& model_folder) {
  if (tokenizer_name == "bytes") return Tokenizer::bytes();
  if (!tokenizer_name.empty()) return Tokenizer::load(tokenizer_name);
  if (is_gguf_file(model_folder)) return load_gguf_tokenizer(model_folder);
  return has_tokenizer(model_folder) ? Tokenizer::load(model_folder) : nullptr;
}

std::optional<ChatTemplate> open_chat_template(const std::string& tokenizer_name, const fs::path& model_folder) {
  if (tokenizer_name == "bytes") return std::nullopt;
  const fs::path path = tokenizer_name.empty() ? model_folder : fs::path(tokenizer_name);
  if (is_gguf_file(path)) return load_gguf_chat_template(path);
  return ChatTemplate::of_folder(fs::is_directory(path) ? path : path.parent_path());
}

RunData load_run_data(const RunConfig& run, const ModelSource& model) {
  RunData data;
  if (run.train_file.empty() && run.validation_file.empty()) return data;
  data.tokenizer = open_tokenizer(run.tokenizer_name, model.tokenizer_folder);
  data.chat_template = open_chat_template(run.tokenizer_name, model.tokenizer_folder);
  const auto load = [&](const std::vector<DataFile>& files) {
    return Dataset::load(dataset_options(run, files, model, data.chat_template), data.tokenizer.get());
  };
  if (!run.train_file.empty()) data.train = load(run.train_file);
  if (!run.validation_file.empty()) data.validation = load(run.validation_file);
  return data;
}

BatchSchedule::Options batch_options(const RunConfig& run) {
  return {.shuffle = run.shuffle,
          .seed = run.seed,
          .micro_batch_rows = run.per_device_train_batch_size,
          .accumulation = run.gradient_accumulation_steps * run.ranks};
}

StreamCapacity capacity_of(const Dataset& dataset, const BatchSchedule::Options& options) {
  const BatchSchedule schedule(dataset, options);
  return {schedule.token_capacity(), schedule.document_capacity()};
}

bool needs_weight_types(const RunConfig& run, const ModelSource& model) {
  const bool has_adapter = run.has_lora || !run.adapter_name_or_path.empty();
  const bool has_frozen = !run.freeze.empty() || !run.train_only.empty();
  return model.has_weights && (has_adapter || (has_frozen && (model.is_gguf || model.is_bitsandbytes)));
}

namespace {

/// Of rows that are all as long as they may be.
StreamCapacity full_capacity(std::int64_t rows, std::int64_t max_length) {
  if (rows > kMostTokens / max_length) {
    fail("a micro-batch of {} rows (per_device_train_batch_size) of max_length {} has more than {} tokens", rows,
         max_length, kMostTokens);
  }
  return {rows * max_length, rows};
}

}  // namespace

CompiledRun compile_run(const RunConfig& run, const ModelSource& model, const WeightFiles* weights, const RunData& data,
                        int rank) {
  const std::int64_t documents = run.per_device_train_batch_size * (run.trains_on_pairs() ? 2 : 1);
  const StreamCapacity train =
      data.train ? capacity_of(*data.train, batch_options(run)) : full_capacity(documents, run.max_length);
  std::optional<StreamCapacity> validation;
  if (data.validation) {
    validation = capacity_of(*data.validation, {.shuffle = false, .micro_batch_rows = run.per_device_eval_batch_size});
  }
  const bool takes_types = needs_weight_types(run, model);
  HEDDLE_CHECK(!takes_types || weights != nullptr);
  WeightRules rules = training_rules(run, model.config, takes_types ? weights : nullptr);
  const LoraModules* adapter = rules.adapter();
  if (model.is_resized && adapter != nullptr && !adapter->has_vocabulary() &&
      adapter->greatest_token_row() + 1 != model.config.vocab_size) {
    fail(
        "the tokenizer's new ids have rows that no adapter holds; expected lora.modules_to_save: [{}], or them, up to "
        "{}, in lora.trainable_token_indices",
        "embed_tokens, lm_head", model.config.vocab_size - 1);
  }
  return compile_training(model.config, run, std::move(rules), train, validation, rank);
}

}  // namespace heddle
