#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "config/curriculum.h"
#include "formats/peft_config.h"

namespace heddle {

struct DataFile {
  std::string path;
  double weight = 1.0;
};

/// Weights that the optimizer treats in a way of their own.
struct ParamGroup {
  std::vector<std::string> params;  // patterns of names
  std::optional<double> learning_rate, lr_scale, weight_decay;
};

enum class Recompute { none, selective, full, automatic };
/// Where something goes that leaves the device; DeepSpeed's names.
enum class OffloadDevice { none, cpu, nvme };
/// What becomes of a block's activations between forward and backward.
struct BlockActivations {
  Recompute recompute = Recompute::none;  // not automatic
  bool is_offloaded = false;              // what is kept leaves for the tier of offload_activations
  bool operator==(const BlockActivations&) const = default;
};
enum class Precision { fp32, bf16, fp16 };
/// Order of sums over ranks: `ordered` gives the same bits for any number of ranks.
enum class ReductionOrder { ordered, fast };

/// Dynamic loss scaling as DeepSpeed's `fp16` section defines it. loss_scale 0: dynamic.
struct LossScaling {
  double loss_scale = 0;
  int initial_scale_power = 16;
  int loss_scale_window = 1000;
  int hysteresis = 2;
  bool consecutive_hysteresis = false;
  double min_loss_scale = 1;
};

/// What DeepSpeed's `zero_optimization` tunes; sizes in elements. The defaults are those of a run without it.
struct ZeroOptions {
  std::int64_t param_persistence_threshold = 0;  // stage 3: smaller tensors stay whole on every rank
  bool overlap_comm = true;                      // communication runs beside the computation
};

/// What DeepSpeed's `aio` tunes: how transfers with the nvme tier are cut and queued. The defaults are DeepSpeed's.
struct AioOptions {
  std::int64_t block_size = 1 << 20;  // bytes
  int queue_depth = 8, intra_op_parallelism = 1;
  bool single_submit = false, overlap_events = true;
};

/// A schedule of learning rates: Hugging Face's name and arguments, or DeepSpeed's `scheduler` object.
struct ScheduleConfig {
  std::string type = "linear";               // Hugging Face's lr_scheduler_type, or DeepSpeed's scheduler.type
  std::map<std::string, double> numbers;     // lr_scheduler_kwargs / params
  std::map<std::string, std::string> words;  // those that are text (decay_type, ...) or true/false
  bool deepspeed = false;
  bool has_warmup_of_run = false;  // DeepSpeed's warmup_num_steps is "auto": warmup_steps or warmup_ratio below
  std::int64_t warmup_steps = 0;
  double warmup_ratio = 0;
};

/// What a pair of a chosen and a rejected answer costs, where the rows are such pairs; TRL's names (DPOConfig).
struct PreferenceConfig {
  std::string loss_type;  // sigmoid, hinge, ipo, robust or sigmoid_norm; empty: rows are no pairs
  double beta = 0.1, label_smoothing = 0.0;
  std::optional<std::int64_t> max_prompt_length;
  bool keeps_end = false;  // truncation_mode: keep_end
};

/// The run file after parsing, overriding and checking. Keys keep the names users know; see docs/run-file.md.
struct RunConfig {
  // model
  std::string model_name_or_path, config_name, tokenizer_name;
  std::optional<std::string> torch_dtype;
  bool resize_token_embeddings = false;
  std::int64_t pad_to_multiple_of = 1;
  // data
  std::vector<DataFile> train_file, validation_file;
  std::int64_t max_length = 1024;
  std::optional<bool> packing;  // absent: true when every row is plain text
  bool shuffle = true;
  std::optional<bool> add_bos, add_eos;
  std::map<std::string, std::string> columns;  // our name for a field of rows -> the files'
  bool skip_bad_rows = false;                  // on_bad_row: skip
  std::string dataset_cache;
  // labels
  bool assistant_only_loss = false;
  std::optional<bool> completion_only_loss;  // absent: true for prompts and completions
  bool train_on_last = false;                // train_on: last
  PreferenceConfig preference;
  // steps
  std::int64_t per_device_train_batch_size = 8, gradient_accumulation_steps = 1, per_device_eval_batch_size = 8;
  std::int64_t max_steps = -1;  // -1: num_train_epochs decides
  double num_train_epochs = 3.0;
  std::uint64_t seed = 42;
  std::int64_t eval_steps = 0;      // 0: only where validation_file: at the end
  bool evaluates_by_epoch = false;  // eval_strategy: epoch
  std::int64_t logging_steps = 1, max_skipped_steps = 10;
  std::optional<double> rewind_on_spike;  // a factor of the loss's median; absent: never
  std::int64_t max_rewinds = 10, check_replicas_steps = 0;
  std::int64_t early_stopping_patience = 0;
  bool load_best_model_at_end = false;
  // optimizer
  std::string optim = "adamw";               // adamw, adamw_8bit, lion, sgd, adafactor or muon
  std::map<std::string, double> optim_args;  // those that are given; see config/optimizer_names.h
  double learning_rate = 5e-5, weight_decay = 0.0, adam_beta1 = 0.9, adam_beta2 = 0.999, adam_epsilon = 1e-8,
         max_grad_norm = 1.0;
  std::vector<std::string> freeze, train_only;  // patterns of names
  std::vector<ParamGroup> param_groups;         // the first that names a weight counts
  double label_smoothing_factor = 0.0, z_loss = 0.0;
  std::optional<double> neftune_noise_alpha;
  ScheduleConfig schedule;
  CurriculumConfig curriculum;  // of the DeepSpeed JSON
  // precision and memory
  Precision precision = Precision::fp32;
  LossScaling loss_scaling;
  Recompute recompute = Recompute::none;
  std::int64_t recompute_every = 1;  // selective, full: of so many blocks the first is recomputed
  // By block, whatever `recompute`, `recompute_every` and `offload_activations` say: what was decided; empty: nothing.
  std::vector<BlockActivations> block_activations;
  bool tiled_mlp = false;
  std::int64_t tiled_mlp_num_shards = 0;                      // 0: tiles of as many tokens as the hidden size
  std::optional<std::uint64_t> device_memory, memory_budget;  // bytes of a rank: on the device; there and on the host
  int zero_stage = 0;                                         // 0..3
  ZeroOptions zero;
  // Of so many groups of weights the gradients (of offload_gradients nvme) or the states stay in memory all the same;
  // decided when the run is compiled within its memory.
  std::size_t resident_gradients = 0, resident_states = 0;
  OffloadDevice offload_optimizer = OffloadDevice::none, offload_param = OffloadDevice::none,
                offload_gradients = OffloadDevice::none,  // none: cpu, wherever the optimizer is offloaded
      offload_activations = OffloadDevice::none;
  std::string nvme_path;  // folder of what goes to nvme
  AioOptions aio;
  // layout
  int ranks = 1;  // all ranks of the run, whatever they share
  ReductionOrder reduction = ReductionOrder::ordered;
  int threads = 0;  // 0: all cores of the process
  // adapters
  std::string adapter_name_or_path;
  bool has_lora = false;
  LoraConfig lora;                     // where has_lora
  std::vector<std::string> lora_keys;  // those of `lora` that are set, so that they must agree with the adapter's
  bool load_in_4bit = false;           // the base's linear layers
  std::string bnb_4bit_quant_type = "nf4";
  bool bnb_4bit_use_double_quant = false;
  // dropout; absent: the model's config
  std::optional<double> attention_dropout, hidden_dropout, embedding_dropout;
  // output
  std::string output_dir;
  std::int64_t save_steps = 0, save_total_limit = 0;  // 0: none / no limit
  std::int64_t save_keep_steps = 0;                   // checkpoints of multiples of it are kept; 0: none
  bool saves_by_epoch = false, saves_best = false;    // save_strategy: epoch, best
  double save_minutes = 0, max_minutes = 0;
  bool save_async = false, save_compressed = false;
  std::string resume_from_checkpoint = "auto";  // auto, false, or a path
  bool report_to_tensorboard = false, memory_timeline = false;

  /// Whether rows are preference pairs.
  bool trains_on_pairs() const { return !preference.loss_type.empty(); }
};

struct ResolvedRun;  // config/run_resolver.h

/// The run file with its overrides, checked; throws Error with file:line and the nearest known key.
class RunFile {
 public:
  using Overrides = std::vector<std::pair<std::string, std::string>>;  // {"lora.r", "8"}
  /// `path` is a YAML or JSON run file. `launcher_ranks`: the ranks that mpirun or srun started, which a `ranks` that
  /// is set must equal; absent without a launcher.
  static RunFile load(const std::filesystem::path& path, const Overrides& overrides,
                      std::optional<int> launcher_ranks = std::nullopt);
  /// The same from text; `name` stands for the file in errors and origins.
  static RunFile parse(std::string_view text, const std::string& name, const Overrides& overrides,
                       std::optional<int> launcher_ranks = std::nullopt);
  /// No file: for `heddle plan config.json --KEY VALUE`; `model` becomes config_name or model_name_or_path.
  static RunFile from_overrides(const std::string& model, const Overrides& overrides);

  const RunConfig& config() const { return config_; }
  /// {KEY: {"value", "origin"}} of every key, defaults included.
  nlohmann::json effective() const;
  /// Sound values may ask for what this version does not have: throws Error naming the first of them. Whoever computes
  /// with config() asks for this first.
  void require_supported() const;
  /// What commands need beyond sound, supported values: a model; data too, whose files are there; for training also
  /// output_dir. Throws Error naming the key that is missing, or whose file is not there (relative paths are relative
  /// to the current folder).
  void require_model_key() const;
  void require_data_keys() const;
  void require_training_keys() const;

 private:
  RunFile(const ResolvedRun& run, std::string name);
  /// Where a key's value comes from.
  std::string origin(std::string_view key) const;

  std::string name_;  // of the run file, for errors
  RunConfig config_;
  std::string unsupported_;  // what require_supported says; empty: nothing
  std::vector<std::pair<std::string, std::pair<std::string, std::string>>> origins_;  // key -> (JSON text, origin)
};

}  // namespace heddle
