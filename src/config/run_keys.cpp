#include "config/run_keys.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "config/optimizer_names.h"

namespace heddle {
namespace {

using namespace std::string_view_literals;
using Rule = ValueRule;

// Counts beyond these come from a slip of the hand; they keep every product of two counts within 64 bits.
constexpr double kMostRows = 0x1p20, kMostSteps = 0x1p53, kMostTokens = 0x1p30, kMostRanks = 0x1p20;

template <typename T>
void put_value(T& target, const Json& value) {
  target = value.get<T>();
}
void put_value(std::string& target, const Json& value) { target = value.is_null() ? "" : value.get<std::string>(); }
template <typename T>
void put_value(std::optional<T>& target, const Json& value) {
  target = value.is_null() ? std::nullopt : std::optional<T>(value.get<T>());
}
void put_value(std::vector<DataFile>& target, const Json& value) {
  target.clear();
  for (const auto& file : value.is_null() ? Json::array() : value) {
    target.push_back({file.at("path").get<std::string>(), file.at("weight").get<double>()});
  }
}
void put_value(std::vector<ParamGroup>& target, const Json& value) {
  target.clear();
  const auto number = [](const Json& group, const char* key) {
    return group.contains(key) ? std::optional(group.at(key).get<double>()) : std::nullopt;
  };
  for (const auto& group : value.is_null() ? Json::array() : value) {
    target.push_back({group.at("params").get<std::vector<std::string>>(), number(group, "learning_rate"),
                      number(group, "lr_scale"), number(group, "weight_decay")});
  }
}
void put_value(std::map<std::string, std::string>& target, const Json& value) {
  target.clear();
  for (const auto& [key, text] : value.items()) target[key] = text.get<std::string>();
}
template <auto Member>
void put(RunConfig& config, const Json& value) {
  put_value(config.*Member, value);
}
template <auto Member>
void put_schedule(RunConfig& config, const Json& value) {
  put_value(config.schedule.*Member, value);
}

template <auto Member>
void put_preference(RunConfig& config, const Json& value) {
  put_value(config.preference.*Member, value);
}
void put_loss_type(RunConfig& config, const Json& value) {
  config.preference.loss_type = value == "nll" ? "" : value.get<std::string>();
}
void put_truncation_mode(RunConfig& config, const Json& value) { config.preference.keeps_end = value == "keep_end"; }

void put_skip_bad_rows(RunConfig& config, const Json& value) { config.skip_bad_rows = value == "skip"; }
void put_train_on(RunConfig& config, const Json& value) { config.train_on_last = value == "last"; }
void put_eval_strategy(RunConfig& config, const Json& value) { config.evaluates_by_epoch = value == "epoch"; }
void put_save_strategy(RunConfig& config, const Json& value) {
  config.saves_by_epoch = value == "epoch";
  config.saves_best = value == "best";
}
void put_save_compression(RunConfig& config, const Json& value) { config.save_compressed = value == "zstd"; }
void put_report_to(RunConfig& config, const Json& value) { config.report_to_tensorboard = value == "tensorboard"; }
void put_recompute(RunConfig& config, const Json& value) {
  config.recompute = value == "full"        ? Recompute::full
                     : value == "selective" ? Recompute::selective
                     : value == "auto"      ? Recompute::automatic
                                            : Recompute::none;
}
void put_reduction(RunConfig& config, const Json& value) {
  config.reduction = value == "fast" ? ReductionOrder::fast : ReductionOrder::ordered;
}
template <auto Member>
void put_offload(RunConfig& config, const Json& value) {
  config.*Member = value == "cpu" ? OffloadDevice::cpu : value == "nvme" ? OffloadDevice::nvme : OffloadDevice::none;
}
void put_bf16(RunConfig& config, const Json& value) {
  if (value == true) config.precision = Precision::bf16;
}
void put_fp16(RunConfig& config, const Json& value) {
  if (value == true) config.precision = Precision::fp16;
}

void put_lora(RunConfig& config, const Json& value) { config.has_lora = !value.is_null(); }
template <auto Member>
void put_lora_value(RunConfig& config, const Json& value) {
  put_value(config.lora.*Member, value);
}
std::vector<std::string> name_list(const Json& value) {
  if (value.is_null()) return {};
  return value.is_string() ? std::vector{value.get<std::string>()} : value.get<std::vector<std::string>>();
}
template <auto Member>
void put_names(RunConfig& config, const Json& value) {
  config.*Member = name_list(value);
}
/// A text that is no plain name is a pattern, as PEFT reads it.
void put_target_modules(RunConfig& config, const Json& value) {
  const bool is_pattern =
      value.is_string() && value.get<std::string>().find_first_of("*+?()[]{}|^$\\-") != std::string::npos;
  config.lora.target_pattern = is_pattern ? value.get<std::string>() : "";
  config.lora.target_modules = is_pattern ? std::vector<std::string>() : name_list(value);
}
/// A list, of the embedding, or lists by module.
void put_token_indices(RunConfig& config, const Json& value) {
  auto& tokens = config.lora.trainable_token_indices;
  tokens.clear();
  if (value.is_array()) tokens.emplace("", value.get<std::vector<std::int64_t>>());
  if (!value.is_object()) return;
  for (const auto& [module, ids] : value.items()) tokens.emplace(module, ids.get<std::vector<std::int64_t>>());
}
void put_modules_to_save(RunConfig& config, const Json& value) { config.lora.modules_to_save = name_list(value); }

constexpr std::array kTorchTypes = {"auto"sv, "float32"sv, "bfloat16"sv, "float16"sv};
constexpr std::array kOnBadRow = {"error"sv, "skip"sv};
constexpr std::array kTrainOn = {"all"sv, "last"sv};
constexpr std::array kLossTypes = {"nll"sv, "sigmoid"sv, "hinge"sv, "ipo"sv, "robust"sv, "sigmoid_norm"sv};
constexpr std::array kTruncationModes = {"keep_start"sv, "keep_end"sv};
constexpr std::array kRecompute = {"none"sv, "selective"sv, "full"sv, "auto"sv};
constexpr std::array kOffload = {"none"sv, "cpu"sv, "nvme"sv};
constexpr std::array kOffloadGradients = {"cpu"sv, "nvme"sv};
constexpr std::array kReduction = {"ordered"sv, "fast"sv};
constexpr std::array kQuantTypes = {"nf4"sv, "fp4"sv};
constexpr std::array kLoraBias = {"none"sv, "all"sv, "lora_only"sv};
constexpr std::array kSaveCompression = {"none"sv, "zstd"sv};
constexpr std::array kEvalStrategy = {"no"sv, "steps"sv, "epoch"sv};
constexpr std::array kSaveStrategy = {"no"sv, "steps"sv, "epoch"sv, "best"sv};
constexpr std::array kReportTo = {"tensorboard"sv, "none"sv};

constexpr std::array kModel = {
    RunKey{"model_name_or_path", Rule::text().or_null(), "null", put<&RunConfig::model_name_or_path>, "",
           "Hugging Face model folder (or GGUF file, checkpoint) whose weights are trained further."},
    RunKey{"config_name", Rule::text().or_null(), "null", put<&RunConfig::config_name>, "",
           "A `config.json`, or a folder with one: train from scratch, with its initialisation and `seed`."},
    RunKey{"tokenizer_name", Rule::text().or_null(), "null", put<&RunConfig::tokenizer_name>, "",
           "Tokenizer folder or `tokenizer.json`; default: beside the model. `bytes`: the byte tokenizer."},
    RunKey{"torch_dtype", Rule::one_of(kTorchTypes).or_null(), "null", put<&RunConfig::torch_dtype>, "",
           "Data type of the exported weights; default, and `auto`: as they came."},
    RunKey{"resize_token_embeddings", Rule::boolean(), "false", put<&RunConfig::resize_token_embeddings>, "",
           "Give the model rows for all ids of a tokenizer that has more than it; see below."},
    RunKey{"pad_to_multiple_of", Rule::whole(1, kMostRows), "1", put<&RunConfig::pad_to_multiple_of>, "",
           "Where it is resized, to a multiple of so many rows."},
};
constexpr std::array kData = {
    RunKey{"train_file", Rule::data_files().or_null(), "null", put<&RunConfig::train_file>, "",
           "Training rows: text, JSON, JSONL (each also as .gz or .zst) or Parquet files, or folders of them; a weight "
           "is a file's "
           "share of an epoch, in times its rows."},
    RunKey{"validation_file", Rule::data_files().or_null(), "null", put<&RunConfig::validation_file>, "",
           "Evaluation rows."},
    RunKey{"max_length", Rule::whole(1, kMostTokens), "1024", put<&RunConfig::max_length>, "",
           "Most tokens of a row (and of a packed row)."},
    RunKey{"packing", Rule::boolean().or_null(), "null", put<&RunConfig::packing>, "",
           "Several documents in one row, which do not see each other; default: true for plain text, else false."},
    RunKey{"shuffle", Rule::boolean(), "true", put<&RunConfig::shuffle>, "",
           "Order of an epoch by (`seed`, epoch); false: file order."},
    RunKey{"add_bos", Rule::boolean().or_null(), "null", put<&RunConfig::add_bos>, "",
           "Begin each text with the begin token; default: as the tokenizer says."},
    RunKey{"add_eos", Rule::boolean().or_null(), "null", put<&RunConfig::add_eos>, "",
           "End each text with the end token; default: as the tokenizer says."},
    RunKey{"columns", Rule::text_map().or_null(), "null", put<&RunConfig::columns>, "",
           "Fields of rows that the files call otherwise, as `{messages: chat}` or `{prompt: question, completion: "
           "answer}`."},
    RunKey{"on_bad_row", Rule::one_of(kOnBadRow), "\"error\"", put_skip_bad_rows, "",
           "What a malformed row does: stop, or be skipped with a warning that names it."},
    RunKey{"dataset_cache", Rule::text().or_null(), "null", put<&RunConfig::dataset_cache>, "",
           "Folder of tokenized data; default: `~/.cache/heddle`, for files of 1 MiB and more."},
};
constexpr std::array kLabels = {
    RunKey{"assistant_only_loss", Rule::boolean(), "false", put<&RunConfig::assistant_only_loss>, "",
           "Conversations: only the assistant's tokens are targets."},
    RunKey{"completion_only_loss", Rule::boolean().or_null(), "null", put<&RunConfig::completion_only_loss>, "",
           "Prompt and completion: only the completion's tokens are targets; default: true for such rows."},
    RunKey{"train_on", Rule::one_of(kTrainOn), "\"all\"", put_train_on, "",
           "Conversations: train on all assistant turns, or on the last alone (which implies `assistant_only_loss`)."},
};
constexpr std::array kPreferences = {
    RunKey{"loss_type", Rule::one_of(kLossTypes), "\"nll\"", put_loss_type, "",
           "`nll`: the negative log-likelihood of the targets. `sigmoid`: DPO, of preference pairs (chosen, rejected); "
           "`hinge`, `ipo`, `robust` and `sigmoid_norm` are its relatives."},
    RunKey{
        "beta", Rule::positive(), "0.1", put_preference<&PreferenceConfig::beta>, "",
        "Weight of a pair's log-probabilities, each against the reference model's; the greater, the nearer the model "
        "stays to that."},
    RunKey{"label_smoothing", Rule::half_open(0, 0.5), "0.0", put_preference<&PreferenceConfig::label_smoothing>, "",
           "Chance that a pair is the wrong way round, for `sigmoid` (conservative DPO) and `robust`."},
    RunKey{"precompute_ref_log_probs", Rule::boolean(), "true", nullptr, "true",
           "The reference model is the one that training starts from, and is asked before the first step, so that it "
           "takes no memory afterwards."},
    RunKey{"max_prompt_length", Rule::whole(1, kMostTokens).or_null(), "null",
           put_preference<&PreferenceConfig::max_prompt_length>, "",
           "A pair's prompt is cut to its last so many tokens."},
    RunKey{"truncation_mode", Rule::one_of(kTruncationModes), "\"keep_start\"", put_truncation_mode, "",
           "Which `max_length` tokens of a prompt and answer are kept."},
};
constexpr std::array kSteps = {
    RunKey{"per_device_train_batch_size", Rule::whole(1, kMostRows), "8", put<&RunConfig::per_device_train_batch_size>,
           "", "Rows of a micro-batch."},
    RunKey{"gradient_accumulation_steps", Rule::whole(1, kMostRows), "1", put<&RunConfig::gradient_accumulation_steps>,
           "", "Micro-batches of an optimizer step, on each rank."},
    RunKey{"max_steps", Rule::whole(-1, kMostSteps), "-1", put<&RunConfig::max_steps>, "",
           "Optimizer steps of the run; -1: `num_train_epochs` decides."},
    RunKey{"num_train_epochs", Rule::positive(), "3.0", put<&RunConfig::num_train_epochs>, "",
           "Passes over the training rows, where `max_steps` is -1."},
    RunKey{"seed", Rule::whole(0), "42", put<&RunConfig::seed>, "", "Of initialisation, shuffling and dropout."},
    RunKey{"per_device_eval_batch_size", Rule::whole(1, kMostRows), "8", put<&RunConfig::per_device_eval_batch_size>,
           "", "Rows of a micro-batch in evaluation."},
    RunKey{"eval_steps", Rule::whole(0, kMostSteps), "0", put<&RunConfig::eval_steps>, "",
           "Evaluate every so many steps; 0: at the end, where there is a `validation_file`."},
    RunKey{
        "eval_strategy", Rule::one_of(kEvalStrategy).or_null(), "null", put_eval_strategy, "",
        "`epoch`: evaluate at the end of each epoch; `steps`: every `eval_steps`; `no`: at the end alone; default: as "
        "`eval_steps` says."},
    RunKey{"logging_steps", Rule::whole(1, kMostSteps), "1", put<&RunConfig::logging_steps>, "",
           "Print every so many steps."},
    RunKey{"early_stopping_patience", Rule::whole(0, kMostSteps), "0", put<&RunConfig::early_stopping_patience>, "",
           "Stop after so many evaluations in a row without a better loss; 0: never. Needs evaluations along the way."},
    RunKey{"load_best_model_at_end", Rule::boolean(), "false", put<&RunConfig::load_best_model_at_end>, "",
           "Export the weights of the best evaluation instead of the last. Needs evaluations along the way, and "
           "checkpoints of them: `save_steps` a multiple of `eval_steps`, both by `epoch`, or `save_strategy: best`."},
    RunKey{"max_skipped_steps", Rule::whole(1, kMostSteps), "10", put<&RunConfig::max_skipped_steps>, "",
           "So many skipped (non-finite) steps in a row stop the run with an error."},
    RunKey{"rewind_on_spike", Rule::above(1).or_null(), "null", put<&RunConfig::rewind_on_spike>, "",
           "A loss above this times its running median, or `max_skipped_steps`, goes back to the checkpoint before and "
           "skips the rows since. Needs checkpoints along the way."},
    RunKey{"max_rewinds", Rule::whole(0, kMostSteps), "10", put<&RunConfig::max_rewinds>, "",
           "So often in a run; the next time is an error."},
    RunKey{"check_replicas_steps", Rule::whole(0, kMostSteps), "0", put<&RunConfig::check_replicas_steps>, "",
           "Compare checksums of what all ranks hold alike every so many steps; 0: never."},
};
constexpr std::array kOptimizer = {
    RunKey{"optim", Rule::one_of(kOptimizerNames), "\"adamw\"", put<&RunConfig::optim>, "",
           "Optimizer; Hugging Face's longer names mean the same."},
    RunKey{"optim_args", Rule::text().or_null(), "null", nullptr, "",
           "Arguments of the optimizer, as `momentum=0.9,nesterov=true`; see [optimizers](optimizers.md)."},
    RunKey{"learning_rate", Rule::number(0), "5e-5", put<&RunConfig::learning_rate>, "",
           "Highest learning rate of the schedule."},
    RunKey{"weight_decay", Rule::number(0), "0.0", put<&RunConfig::weight_decay>, "",
           "On tensors of two or more dimensions; decoupled."},
    RunKey{"adam_beta1", Rule::half_open(0, 1), "0.9", put<&RunConfig::adam_beta1>, "", "Decay of the first moment."},
    RunKey{"adam_beta2", Rule::half_open(0, 1), "0.999", put<&RunConfig::adam_beta2>, "",
           "Decay of the second moment."},
    RunKey{"adam_epsilon", Rule::number(0), "1e-8", put<&RunConfig::adam_epsilon>, "",
           "Added to the root of the second moment."},
    RunKey{"label_smoothing_factor", Rule::half_open(0, 1), "0.0", put<&RunConfig::label_smoothing_factor>, "",
           "Share of each target that is spread evenly over the vocabulary; in training alone."},
    RunKey{"z_loss", Rule::number(0), "0.0", put<&RunConfig::z_loss>, "",
           "Weight of the squared logarithm of the softmax's denominator in the loss; in training alone."},
    RunKey{"neftune_noise_alpha", Rule::number(0).or_null(), "null", put<&RunConfig::neftune_noise_alpha>, "",
           "Uniform noise on embeddings, up to alpha / sqrt(tokens of the document x hidden size); in training alone."},
    RunKey{"freeze", Rule::text_list().or_null(), "null", put_names<&RunConfig::freeze>, "",
           "Weights that are not trained: patterns of names; see below."},
    RunKey{"train_only", Rule::text_list().or_null(), "null", put_names<&RunConfig::train_only>, "",
           "The weights that are trained, in place of `freeze`."},
    RunKey{"param_groups", Rule::param_groups().or_null(), "null", put<&RunConfig::param_groups>, "",
           "Learning rates and weight decay of some weights; see below."},
    RunKey{"max_grad_norm", Rule::number(0), "1.0", put<&RunConfig::max_grad_norm>, "",
           "Global gradient norm above which gradients are scaled down; 0: never."},
    RunKey{"lr_scheduler_type", Rule::text(), "\"linear\"", put_schedule<&ScheduleConfig::type>, "",
           "Schedule of learning rates; see below."},
    RunKey{"lr_scheduler_kwargs", Rule::map().or_null(), "null", nullptr, "", "Arguments of the schedule; see below."},
    RunKey{"warmup_steps", Rule::whole(0, kMostSteps), "0", put_schedule<&ScheduleConfig::warmup_steps>, "",
           "Steps of warm-up."},
    RunKey{"warmup_ratio", Rule::number(0, 1), "0.0", put_schedule<&ScheduleConfig::warmup_ratio>, "",
           "Steps of warm-up as a part of all steps, rounded up."},
};
constexpr std::array kPrecision = {
    RunKey{"bf16", Rule::boolean(), "false", put_bf16, "",
           "Weights, activations and gradients in bfloat16; master weights stay fp32."},
    RunKey{"fp16", Rule::boolean(), "false", put_fp16, "",
           "The same in float16, with dynamic loss scaling; neither: fp32."},
};
constexpr std::array kMemory = {
    RunKey{"gradient_checkpointing", Rule::boolean(), "false", nullptr, "", "true: `recompute: full`."},
    RunKey{"recompute", Rule::one_of(kRecompute), "\"none\"", put_recompute, "",
           "Activations that the backward rebuilds: what one pass over others gives (norms, activation functions); "
           "attention too; whole blocks. `auto`: chosen for each block, as little as the budget allows; see "
           "[train beyond memory](how-to/train-beyond-memory.md)."},
    RunKey{"recompute_every", Rule::whole(1, kMostSteps), "1", put<&RunConfig::recompute_every>, "",
           "With `recompute` selective or full: of every so many blocks the first is recomputed, the others keep their "
           "activations."},
    RunKey{"tiled_mlp", Rule::boolean(), "false", put<&RunConfig::tiled_mlp>, "",
           "Each block's MLP for some tokens after another, and again in the backward: of its inside one tile is in "
           "memory at a time."},
    RunKey{
        "tiled_mlp_num_shards", Rule::whole(0, kMostTokens), "0", put<&RunConfig::tiled_mlp_num_shards>, "",
        "Tiles of a micro-batch, at most (they are made of multiples of 320 tokens); 0: as many tokens in each as the "
        "hidden size."},
    RunKey{"zero_stage", Rule::whole(0, 3), "0", put<&RunConfig::zero_stage>, "",
           "What ranks share: 1 optimizer states, 2 also gradients, 3 also weights."},
    RunKey{"offload_optimizer", Rule::one_of(kOffload), "\"none\"", put_offload<&RunConfig::offload_optimizer>, "",
           "Tier of optimizer states and master weights; with a budget, of as few weights as it asks for."},
    RunKey{"offload_gradients", Rule::one_of(kOffloadGradients).or_null(), "null",
           put_offload<&RunConfig::offload_gradients>, "",
           "Tier of gradients; default: cpu beside `offload_optimizer`. `nvme` goes without it too, and with several "
           "ranks at `zero_stage` 2 or 3; no more of them move than the budget asks for."},
    RunKey{"offload_param", Rule::one_of(kOffload), "\"none\"", put_offload<&RunConfig::offload_param>, "",
           "Tier of weights, which come to the device for each unit; with several ranks at `zero_stage: 3`."},
    RunKey{"offload_activations", Rule::one_of(kOffload), "\"none\"", put_offload<&RunConfig::offload_activations>, "",
           "Tier of what the forward keeps for the backward; with a budget, of as few blocks as it asks for."},
    RunKey{"nvme_path", Rule::text().or_null(), "null", put<&RunConfig::nvme_path>, "",
           "Folder of what is offloaded to `nvme`."},
    RunKey{"device_memory", Rule::bytes().or_null(), "null", put<&RunConfig::device_memory>, "",
           "Budget of a rank's device; a run whose plan is larger is refused."},
    RunKey{"memory_budget", Rule::bytes().or_null(), "null", put<&RunConfig::memory_budget>, "",
           "Budget of a rank's device and host memory together; the same."},
};
constexpr std::array kLayout = {
    RunKey{"ranks", Rule::whole(1, kMostRanks), "1", put<&RunConfig::ranks>, "",
           "Threads that stand for ranks in one process; under MPI the launcher decides."},
    RunKey{"threads", Rule::whole(0, 4096), "0", put<&RunConfig::threads>, "",
           "Threads of a rank; 0: all cores of the process."},
    RunKey{"tensor_parallel", Rule::whole(1, kMostRanks), "1", nullptr, "1", "Ranks that share each product."},
    RunKey{"pipeline_parallel", Rule::whole(1, kMostRanks), "1", nullptr, "1", "Ranks that share the blocks."},
    RunKey{"context_parallel", Rule::whole(1, kMostRanks), "1", nullptr, "1", "Ranks that share a row's tokens."},
    RunKey{"sequence_parallel", Rule::boolean(), "false", nullptr, "false",
           "Shares norms and dropout over the ranks of `tensor_parallel`."},
    RunKey{"reduction", Rule::one_of(kReduction), "\"ordered\"", put_reduction, "",
           "`ordered`: no bit depends on the number of ranks; `fast`: the library's order."},
};
constexpr std::array kDeepSpeed = {
    RunKey{"deepspeed", Rule::text().or_null(), "null", nullptr, "",
           "A DeepSpeed JSON: a path, or the object itself; see below."},
};
constexpr std::array kAdapters = {
    RunKey{"adapter_name_or_path", Rule::text().or_null(), "null", put<&RunConfig::adapter_name_or_path>, "",
           "PEFT adapter to start from; `lora` beside it must agree."},
    RunKey{"lora", Rule::map().or_null(), "null", put_lora, "", "Train a low-rank adapter instead of the weights."},
    RunKey{"lora.r", Rule::whole(1, kMostRows), "8", put_lora_value<&LoraConfig::r>, "", "Rank of the adapter."},
    RunKey{"lora.lora_alpha", Rule::number(0), "8", put_lora_value<&LoraConfig::lora_alpha>, "",
           "Its products are scaled by lora_alpha / r."},
    RunKey{"lora.lora_dropout", Rule::half_open(0, 1), "0.0", put_lora_value<&LoraConfig::lora_dropout>, "",
           "Dropout before the adapter."},
    RunKey{
        "lora.target_modules", Rule::text_list().or_null(), "null", put_target_modules, "",
        "Linear layers, embedding or head with an adapter: names or their ends, a regular expression of whole names, "
        "or `all-linear` (all but the head); default: PEFT's for the family."},
    RunKey{"lora.modules_to_save", Rule::text_list().or_null(), "null", put_modules_to_save, "",
           "Modules that are trained whole and saved with the adapter."},
    RunKey{"lora.trainable_token_indices", Rule::token_indices().or_null(), "null", put_token_indices, "",
           "Ids whose rows of the embedding are trained, and of the head where that is tied to it; or by module, as "
           "`{embed_tokens: [0], lm_head: [0]}`."},
    RunKey{"lora.use_rslora", Rule::boolean(), "false", put_lora_value<&LoraConfig::use_rslora>, "",
           "Scale by lora_alpha / sqrt(r)."},
    RunKey{"lora.use_dora", Rule::boolean(), "false", put_lora_value<&LoraConfig::use_dora>, "",
           "Weight-decomposed adapters."},
    RunKey{
        "lora.ensure_weight_tying", Rule::boolean(), "false", put_lora_value<&LoraConfig::ensure_weight_tying>, "",
        "An embedding in `modules_to_save` and the head that is tied to it stay one; else they are two, as in PEFT."},
    RunKey{"lora.bias", Rule::one_of(kLoraBias), "\"none\"", put_lora_value<&LoraConfig::bias>, "",
           "Biases that are trained: none, all, or those of layers with an adapter."},
    RunKey{"load_in_4bit", Rule::boolean(), "false", put<&RunConfig::load_in_4bit>, "",
           "Linear layers of the base in four bits (QLoRA)."},
    RunKey{"bnb_4bit_quant_type", Rule::one_of(kQuantTypes), "\"nf4\"", put<&RunConfig::bnb_4bit_quant_type>, "",
           "Their type (bitsandbytes' own default is fp4)."},
    RunKey{"bnb_4bit_use_double_quant", Rule::boolean(), "false", put<&RunConfig::bnb_4bit_use_double_quant>, "",
           "Quantize their scales too."},
    RunKey{"bnb_4bit_compute_dtype", Rule::one_of(kTorchTypes).or_null(), "null", nullptr, "",
           "Data type of their products: that of the run (`bf16`, `fp16`, else float32)."},
};
constexpr std::array kOutput = {
    RunKey{"output_dir", Rule::text().or_null(), "null", put<&RunConfig::output_dir>, "",
           "Folder of the trained model, checkpoints and reports."},
    RunKey{"save_steps", Rule::whole(0, kMostSteps), "0", put<&RunConfig::save_steps>, "",
           "Checkpoint every so many steps; 0: none but at a signal."},
    RunKey{
        "save_strategy", Rule::one_of(kSaveStrategy).or_null(), "null", put_save_strategy, "",
        "`epoch`: checkpoint at the end of each epoch; `best`: after each evaluation that is the best so far; `steps`: "
        "every `save_steps`; `no`; default: as `save_steps` says."},
    RunKey{"save_minutes", Rule::number(0), "0", put<&RunConfig::save_minutes>, "",
           "Checkpoint every so many minutes; 0: never."},
    RunKey{"max_minutes", Rule::number(0), "0", put<&RunConfig::max_minutes>, "",
           "Stop after so many minutes, with a checkpoint; 0: never. In a Slurm job also before its end."},
    RunKey{"save_total_limit", Rule::whole(0, kMostSteps), "0", put<&RunConfig::save_total_limit>, "",
           "Checkpoints that are kept; 0: all."},
    RunKey{"save_keep_steps", Rule::whole(0, kMostSteps), "0", put<&RunConfig::save_keep_steps>, "",
           "Those of a step that is a multiple of this are kept whatever `save_total_limit` says; 0: none."},
    RunKey{"save_async", Rule::boolean(), "false", put<&RunConfig::save_async>, "",
           "Write checkpoints while training goes on; 8 MiB of memory more."},
    RunKey{"save_compression", Rule::one_of(kSaveCompression), "\"none\"", put_save_compression, "",
           "Of the tensors of checkpoints: a sixth less for fp32, for more processor time."},
    RunKey{"resume_from_checkpoint", Rule::resume(), "\"auto\"", put<&RunConfig::resume_from_checkpoint>, "",
           "`auto`: the newest complete checkpoint in `output_dir`; `false`: from the start; or a path."},
    RunKey{"report_to", Rule::one_of(kReportTo), "\"none\"", put_report_to, "", "TensorBoard events below `runs/`."},
    RunKey{"memory_timeline", Rule::boolean(), "false", put<&RunConfig::memory_timeline>, "",
           "Write `timeline.json` and `timeline.svg`: bytes held by class through a step, and what each instruction "
           "took."},
};
constexpr std::array kDropout = {
    RunKey{"attention_dropout", Rule::half_open(0, 1).or_null(), "null", put<&RunConfig::attention_dropout>, "",
           "Of attention probabilities; default: the model's config."},
    RunKey{"hidden_dropout", Rule::half_open(0, 1).or_null(), "null", put<&RunConfig::hidden_dropout>, "",
           "Of what blocks add to the residual; default: the model's config."},
    RunKey{"embedding_dropout", Rule::half_open(0, 1).or_null(), "null", put<&RunConfig::embedding_dropout>, "",
           "Of the embeddings; default: the model's config."},
};

constexpr std::array kSubjects = {
    RunSubject{"model", kModel},         RunSubject{"data", kData},
    RunSubject{"labels", kLabels},       RunSubject{"preferences", kPreferences},
    RunSubject{"steps", kSteps},         RunSubject{"optimizer", kOptimizer},
    RunSubject{"precision", kPrecision}, RunSubject{"memory", kMemory},
    RunSubject{"layout", kLayout},       RunSubject{"DeepSpeed", kDeepSpeed},
    RunSubject{"adapters", kAdapters},   RunSubject{"output", kOutput},
    RunSubject{"dropout", kDropout},
};

}  // namespace

std::span<const RunSubject> run_subjects() { return kSubjects; }

const RunKey* find_run_key(std::string_view name) {
  for (const auto& subject : kSubjects) {
    for (const auto& key : subject.keys) {
      if (key.name == name) return &key;
    }
  }
  return nullptr;
}

std::vector<std::string_view> run_key_names(std::string_view section) {
  std::vector<std::string_view> names;
  for (const auto& subject : kSubjects) {
    for (const auto& key : subject.keys) {
      const auto dot = key.name.find('.');
      if (section.empty() && dot == std::string_view::npos) names.push_back(key.name);
      if (!section.empty() && dot == section.size() && key.name.starts_with(section)) {
        names.push_back(key.name.substr(dot + 1));
      }
    }
  }
  return names;
}

RunSettings::RunSettings() {
  for (const auto& subject : kSubjects) {
    for (const auto& key : subject.keys) settings_[std::string(key.name)].value = Json::parse(key.fallback);
  }
}

Setting& RunSettings::at(std::string_view key) {
  const auto found = settings_.find(key);
  if (found == settings_.end()) fail("internal: {} is not a key of the run file", key);
  return found->second;
}

const Setting& RunSettings::at(std::string_view key) const { return const_cast<RunSettings*>(this)->at(key); }

std::string plain_text(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool is_among(const Json& value, std::string_view only) {
  if (only.empty()) return true;
  const auto text = plain_text(value);
  while (true) {
    const auto bar = only.find('|');
    if (only.substr(0, bar) == text) return true;
    if (bar == std::string_view::npos) return false;
    only.remove_prefix(bar + 1);
  }
}

std::int64_t data_parallel_ranks(const RunSettings& settings) {
  std::int64_t others = 1;
  std::string names;
  const auto& ranks = settings.at("ranks");
  std::string where = ranks.origin;
  for (const auto* key : {"tensor_parallel", "pipeline_parallel", "context_parallel"}) {
    const auto& setting = settings.at(key);
    if (setting.value == 1) continue;
    others *= setting.value.get<std::int64_t>();
    names += fmt::format("{}{} {} ({})", names.empty() ? "" : " x ", key, plain_text(setting.value), setting.origin);
    if (!ranks.is_set) where = setting.origin;
  }
  const auto all = ranks.value.get<std::int64_t>();
  if (all % others != 0) fail("{}: ranks is {}; expected a multiple of {}", where, all, names);
  return all / others;
}

std::string find_unsupported(const RunSettings& settings) {
  for (const auto& subject : kSubjects) {
    for (const auto& key : subject.keys) {
      const auto& setting = settings.at(key.name);
      if (is_among(setting.value, key.only)) continue;
      if (key.only == "null") {
        return fmt::format("{}: this version does not have {} yet; leave it out", setting.origin, key.name);
      }
      std::string choices(key.only);
      std::replace(choices.begin(), choices.end(), '|', ',');
      return fmt::format("{}: {} is {}, which this version does not have yet; it has {}", setting.origin, key.name,
                         plain_text(setting.value), choices);
    }
  }
  return "";
}

}  // namespace heddle
