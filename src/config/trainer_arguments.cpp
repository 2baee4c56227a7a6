// transformers/training_args.py of versions 4 and 5, a few arguments of TRL's trainers and of the example scripts.
#include "config/trainer_arguments.h"

#include <algorithm>
#include <array>

namespace heddle {
namespace {

using Argument = TrainerArgument;
using Use = TrainerArgument::Use;

constexpr Argument same(std::string_view name) { return {name, Use::run_key, name}; }
constexpr Argument key(std::string_view name, std::string_view run_key) { return {name, Use::run_key, run_key}; }
constexpr Argument rule(std::string_view name, std::string_view run_key, std::string_view why) {
  return {name, Use::rule, run_key, {}, why};
}
constexpr Argument ignored(std::string_view name, std::string_view harmless, std::string_view why) {
  return {name, Use::ignored, {}, harmless, why};
}
constexpr Argument refused(std::string_view name, std::string_view harmless, std::string_view why) {
  return {name, Use::refused, {}, harmless, why};
}

constexpr auto kScript = "the script's own affair";
constexpr auto kPyTorch = "it concerns PyTorch only";
constexpr auto kDevice = "the program runs where its backend is";
constexpr auto kLoader = "rows are tokenized once and read from a cache";
constexpr auto kLogging = "logging_steps decides what is printed; metrics.jsonl has every step";
constexpr auto kHub = "nothing is sent over the network";
constexpr auto kMetrics = "evaluation computes the loss and the perplexity";
constexpr auto kEvalPrecision = "evaluation runs in the precision of training";
constexpr auto kOptimizers = "it belongs to an optimizer that is not here";
constexpr auto kOrder = "an epoch is shuffled as a whole";
constexpr auto kPreference = "it changes the loss of preference pairs, and Heddle does not have it";
constexpr auto kReference = "the reference is the model that training starts from, asked once before the first step";
constexpr auto kNoPlateau = "the best evaluation is the one with the least loss";

constexpr std::array kArguments = {
    same("output_dir"),
    same("per_device_train_batch_size"),
    same("per_device_eval_batch_size"),
    key("per_gpu_train_batch_size", "per_device_train_batch_size"),
    key("per_gpu_eval_batch_size", "per_device_eval_batch_size"),
    same("gradient_accumulation_steps"),
    same("num_train_epochs"),
    same("max_steps"),
    same("seed"),
    same("learning_rate"),
    same("weight_decay"),
    same("adam_beta1"),
    same("adam_beta2"),
    same("adam_epsilon"),
    same("label_smoothing_factor"),
    same("neftune_noise_alpha"),
    same("bf16"),
    same("fp16"),
    same("load_best_model_at_end"),
    key("max_seq_length", "max_length"),
    key("block_size", "max_length"),
    rule("max_grad_norm", "max_grad_norm", "null: 0"),
    rule("optim", "optim", "PyTorch's AdamWs are adamw; a DeepSpeed optimizer takes its place"),
    rule("optim_args", "optim_args", "not for AdamW, which reads none; a DeepSpeed optimizer takes its place"),
    rule("adafactor", "optim", "true: adafactor"),
    rule("lr_scheduler_type", "lr_scheduler_type", "a DeepSpeed scheduler takes its place"),
    rule("lr_scheduler_kwargs", "lr_scheduler_kwargs", "a DeepSpeed scheduler takes its place"),
    rule("warmup_steps", "warmup_steps", "below 1: warmup_ratio"),
    rule("warmup_ratio", "warmup_ratio", "where warmup_steps is 0"),
    rule("gradient_checkpointing", "gradient_checkpointing", "or activation_checkpointing"),
    rule("activation_checkpointing", "gradient_checkpointing", "or gradient_checkpointing"),
    rule("logging_strategy", "logging_steps", "no, epoch: ignored with a note"),
    rule("logging_steps", "logging_steps", "a part of all steps needs max_steps"),
    rule("eval_strategy", "eval_strategy", "steps: eval_steps; no: left out"),
    rule("evaluation_strategy", "eval_strategy", "as eval_strategy"),
    rule("eval_steps", "eval_steps", "where eval_strategy is steps; null: logging_steps"),
    rule("save_strategy", "save_strategy", "steps: save_steps; no: left out"),
    rule("save_steps", "save_steps", "where save_strategy is steps"),
    rule("save_total_limit", "save_total_limit", "null: 0"),
    rule("report_to", "report_to", "TensorBoard, if it is among them"),
    rule("resume_from_checkpoint", "resume_from_checkpoint", "true: auto; null: left out"),
    rule("train_sampling_strategy", "shuffle", "sequential: false; group_by_length: refused"),
    rule("fsdp", "zero_stage", "full_shard: 3; shard_grad_op: 2; offload: offload_param cpu"),
    rule("deepspeed", "deepspeed", "the path or the object"),
    rule("loss_type", "loss_type", "of a list its only name"),
    rule("activation_offloading", "offload_activations", "true: cpu"),

    refused("optim_target_modules", "null", kOptimizers),
    refused("group_by_length", "false", kOrder),
    refused("sortish_sampler", "false", kOrder),
    refused("dataloader_drop_last", "false", "the last step of an epoch takes the rows that are left"),
    refused("split_batches", "null|false", "per_device_train_batch_size is each rank's"),
    refused("metric_for_best_model", "null|loss|eval_loss", kNoPlateau),
    refused("greater_is_better", "null|false", kNoPlateau),
    refused("past_index", "-1", "no state is carried from row to row"),
    refused("parallelism_config", "null", "tensor_parallel, context_parallel and ranks are the run file's keys"),
    refused("mp_parameters", "", "tensor_parallel and pipeline_parallel are the run file's keys"),
    refused("tp_size", "0|1", "tensor_parallel is the run file's key"),

    refused("loss_weights", "null", kPreference),
    refused("ld_alpha", "null|1.0|1", kPreference),
    refused("rpo_alpha", "null", kPreference),
    refused("f_divergence_type", "reverse_kl", kPreference),
    refused("use_weighting", "false", kPreference),
    refused("max_completion_length", "null", "max_length bounds prompt and answer together"),
    refused("disable_dropout", "true", "attention_dropout, hidden_dropout and embedding_dropout turn dropout on"),
    refused("reference_free", "false", kReference),
    refused("sync_ref_model", "false", kReference),
    refused("ref_model_init_kwargs", "null", kReference),
    refused("model_adapter_name", "null", kReference),
    refused("ref_adapter_name", "null", kReference),
    refused("is_encoder_decoder", "null|false", "models are decoders"),

    ignored("precompute_ref_log_probs", "*", kReference),
    ignored("precompute_ref_batch_size", "*", kReference),
    ignored("force_use_ref_model", "*", kReference),
    ignored("ref_model_mixup_alpha", "*", "sync_ref_model reads it"),
    ignored("ref_model_sync_steps", "*", "sync_ref_model reads it"),
    ignored("f_alpha_divergence_coef", "*", "f_divergence_type alpha_divergence reads it"),
    ignored("discopop_tau", "*", "loss_type discopop reads it"),
    ignored("generate_during_eval", "false", kMetrics),
    ignored("router_aux_loss_coef", "*", "no family has a router"),
    ignored("model_init_kwargs", "null", kScript),
    ignored("trust_remote_code", "*", "no code comes with a model"),
    ignored("dataset_num_proc", "*", kLoader),
    ignored("padding_free", "*", "rows lie end to end, without padding"),
    ignored("pad_to_multiple_of", "*", "rows lie end to end, without padding"),
    ignored("pad_token", "*", "rows lie end to end, without padding"),
    ignored("padding_value", "*", "rows lie end to end, without padding"),
    ignored("label_pad_token_id", "-100", "rows lie end to end, without padding"),
    ignored("use_logits_to_keep", "*", "logits are made a chunk of tokens at a time"),
    ignored("use_liger_loss", "*", "logits are made a chunk of tokens at a time"),
    ignored("tools", "null", "a row carries its own"),

    ignored("do_train", "*", kScript),
    ignored("do_eval", "*", kScript),
    ignored("do_predict", "*", kScript),
    ignored("overwrite_output_dir", "false", "output_dir is resumed where it holds a checkpoint"),
    ignored("run_name", "*", kScript),
    ignored("project", "*", kScript),
    ignored("trackio_space_id", "null", kHub),
    ignored("trackio_bucket_id", "null", kHub),
    ignored("trackio_static_space_id", "null", kHub),
    ignored("data_seed", "null", "the order of rows follows seed"),
    ignored("full_determinism", "*", "runs repeat bit by bit anyway"),
    ignored("average_tokens_across_devices", "true", "the loss is always over the tokens of all ranks"),
    ignored("auto_find_batch_size", "false", "heddle plan says beforehand what fits"),
    ignored("accelerator_config", "*", "ranks divide the micro-batches of a step among them"),
    ignored("dispatch_batches", "null", kLoader),
    ignored("dataloader_num_workers", "0", kLoader),
    ignored("dataloader_prefetch_factor", "null", kLoader),
    ignored("dataloader_pin_memory", "*", kLoader),
    ignored("dataloader_persistent_workers", "*", kLoader),
    ignored("dataloader_multiprocessing_context", "null", kLoader),
    ignored("dataloader_in_order", "true", kLoader),
    ignored("remove_unused_columns", "*", kLoader),
    ignored("label_names", "null", kLoader),
    ignored("length_column_name", "*", kLoader),
    ignored("dataset_text_field", "text", "a row's text is its key text"),
    ignored("ignore_data_skip", "false", "a resumed run goes on with the next row"),

    ignored("gradient_checkpointing_kwargs", "null", kPyTorch),
    ignored("activation_checkpointing_kwargs", "null", kPyTorch),
    ignored("torch_compile", "false", "every step is compiled to a program before it runs"),
    ignored("torch_compile_backend", "null", kPyTorch),
    ignored("torch_compile_mode", "null", kPyTorch),
    ignored("torchdynamo", "null", kPyTorch),
    ignored("torch_empty_cache_steps", "null", kPyTorch),
    ignored("use_liger_kernel", "false", "losses and norms are fused anyway"),
    ignored("liger_kernel_config", "null", "losses and norms are fused anyway"),
    ignored("use_cache", "*", "training keeps no cache of keys and values"),
    ignored("tf32", "null", "products have the precision of bf16, fp16 or neither"),
    ignored("fp16_opt_level", "O1", kPyTorch),
    ignored("half_precision_backend", "auto", kPyTorch),
    ignored("fp16_backend", "auto", kPyTorch),
    ignored("bf16_full_eval", "false", kEvalPrecision),
    ignored("fp16_full_eval", "false", kEvalPrecision),
    ignored("jit_mode_eval", "false", kPyTorch),
    ignored("use_ipex", "false", kPyTorch),
    ignored("use_cpu", "*", kDevice),
    ignored("no_cuda", "*", kDevice),
    ignored("use_mps_device", "*", kDevice),
    ignored("tpu_num_cores", "null", kDevice),
    ignored("tpu_metrics_debug", "false", kDevice),
    ignored("local_rank", "*", "the launcher says it"),
    ignored("n_gpu", "*", "the launcher says it"),
    ignored("train_batch_size", "*", "per_device_train_batch_size says it"),
    ignored("eval_batch_size", "*", "per_device_eval_batch_size says it"),
    ignored("ray_scope", "*", kScript),
    ignored("debug", "[]|", kPyTorch),
    ignored("ddp_backend", "null", "ranks talk by threads or MPI"),
    ignored("ddp_timeout", "*", "ranks talk by threads or MPI"),
    ignored("ddp_find_unused_parameters", "null|false", kPyTorch),
    ignored("ddp_bucket_cap_mb", "null", kPyTorch),
    ignored("ddp_broadcast_buffers", "null", kPyTorch),
    ignored("ddp_static_graph", "null", kPyTorch),
    ignored("fsdp_config", "*", "weights travel by unit of the model"),
    ignored("fsdp_min_num_params", "0", "weights travel by unit of the model"),
    ignored("fsdp_transformer_layer_cls_to_wrap", "null", "weights travel by unit of the model"),

    ignored("logging_dir", "*", kLogging),
    ignored("logging_first_step", "false", kLogging),
    ignored("logging_nan_inf_filter", "*", kLogging),
    ignored("log_level", "*", kLogging),
    ignored("log_level_replica", "*", kLogging),
    ignored("log_on_each_node", "*", kLogging),
    ignored("disable_tqdm", "*", kLogging),
    ignored("skip_memory_metrics", "*", "memory.json has the bytes of every class"),
    ignored("include_tokens_per_second", "*", kLogging),
    ignored("include_num_input_tokens_seen", "*", kLogging),

    ignored("eval_delay", "0|0.0", "evaluation starts with the first eval_steps"),
    ignored("eval_on_start", "false", "heddle eval measures a model that is not trained yet"),
    ignored("eval_accumulation_steps", "null", kMetrics),
    ignored("eval_do_concat_batches", "*", kMetrics),
    ignored("eval_use_gather_object", "*", kMetrics),
    ignored("batch_eval_metrics", "false", kMetrics),
    ignored("include_inputs_for_metrics", "false", kMetrics),
    ignored("include_for_metrics", "[]", kMetrics),
    ignored("prediction_loss_only", "*", kMetrics),
    ignored("use_legacy_prediction_loop", "*", kMetrics),
    ignored("predict_with_generate", "false", kMetrics),
    ignored("generation_max_length", "null", kMetrics),
    ignored("generation_num_beams", "null", kMetrics),
    ignored("generation_config", "null", kMetrics),

    ignored("save_safetensors", "true", "models are exported as safetensors"),
    ignored("save_on_each_node", "false", "a checkpoint is one folder"),
    ignored("save_only_model", "false", "a checkpoint is the whole training state"),
    ignored("enable_jit_checkpoint", "false", "a signal leaves a checkpoint anyway"),
    ignored("restore_callback_states_from_checkpoint", "false", "there are no callbacks"),
    ignored("push_to_hub", "false", kHub),
    ignored("push_to_hub_model_id", "*", kHub),
    ignored("push_to_hub_organization", "*", kHub),
    ignored("push_to_hub_token", "*", kHub),
    ignored("hub_model_id", "*", kHub),
    ignored("hub_strategy", "*", kHub),
    ignored("hub_token", "*", kHub),
    ignored("hub_private_repo", "*", kHub),
    ignored("hub_always_push", "*", kHub),
    ignored("hub_revision", "*", kHub),
};

}  // namespace

std::span<const TrainerArgument> trainer_arguments() { return kArguments; }

const TrainerArgument* find_trainer_argument(std::string_view name) {
  const auto at = std::find_if(kArguments.begin(), kArguments.end(), [&](const auto& row) { return row.name == name; });
  return at == kArguments.end() ? nullptr : &*at;
}

}  // namespace heddle
