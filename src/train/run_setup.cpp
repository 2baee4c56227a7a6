#include "train/run_setup.h"

#include <cstdlib>

#include "base/error.h"
#include "formats/files.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

/// Small files are tokenized faster than a cache is looked up.
bool is_worth_a_cache(const std::vector<DataFile>& files) {
  constexpr std::uintmax_t kSmall = std::uintmax_t{1} << 20;
  std::uintmax_t bytes = 0;
  for (const auto& file : files) {
    std::error_code error;
    if (const auto size = fs::file_size(file.path, error); !error) bytes += size;
  }
  return bytes >= kSmall;
}

DatasetOptions dataset_options(const RunConfig& run, const std::vector<DataFile>& files, const ModelSource& model) {
  DatasetOptions options;
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

ModelSource open_model(const fs::path& path) {
  ModelSource source;
  std::error_code error;
  if (!fs::exists(path, error)) fail("{}: no such model folder or config.json", path.string());
  if (fs::is_directory(path)) {
    source.folder = path;
    source.config_path = path / "config.json";
    if (!fs::exists(source.config_path))
      fail("{}: has no config.json; expected a Hugging Face model folder", path.string());
    source.has_weights = true;
  } else {
    if (path.extension() != ".json") {
      fail("{}: is no model; expected a Hugging Face model folder or a config.json", path.string());
    }
    source.folder = path.parent_path();
    source.config_path = path;
  }
  source.config_text = read_text_file(source.config_path);
  source.config = parse_model_config(source.config_text, source.config_path.string());
  return source;
}

ModelSource open_run_model(const RunConfig& run) {
  if (!run.model_name_or_path.empty()) return open_model(run.model_name_or_path);
  ModelSource source = open_model(run.config_name);
  source.has_weights = false;
  return source;
}

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& tokenizer_name, const fs::path& model_folder) {
  if (tokenizer_name == "bytes") return Tokenizer::bytes();
  if (!tokenizer_name.empty()) return Tokenizer::load(tokenizer_name);
  for (const char* name : {"tokenizer.json", "tokenizer.model", "vocab.json"}) {
    if (fs::exists(model_folder / name)) return Tokenizer::load(model_folder);
  }
  return nullptr;
}

RunData load_run_data(const RunConfig& run, const ModelSource& model) {
  RunData data;
  if (run.train_file.empty() && run.validation_file.empty()) return data;
  data.tokenizer = open_tokenizer(run.tokenizer_name, model.folder);
  if (!run.train_file.empty())
    data.train = Dataset::load(dataset_options(run, run.train_file, model), data.tokenizer.get());
  if (!run.validation_file.empty()) {
    data.validation = Dataset::load(dataset_options(run, run.validation_file, model), data.tokenizer.get());
  }
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

CompiledRun compile_run(const RunConfig& run, const ModelSource& model, const RunData& data, int rank) {
  StreamCapacity train{run.per_device_train_batch_size * run.max_length, run.per_device_train_batch_size};
  if (data.train) train = capacity_of(*data.train, batch_options(run));
  std::optional<StreamCapacity> validation;
  if (data.validation) {
    validation = capacity_of(*data.validation, {.shuffle = false, .micro_batch_rows = run.per_device_eval_batch_size});
  }
  return compile_training(model.config, run, train, validation, rank);
}

}  // namespace heddle
