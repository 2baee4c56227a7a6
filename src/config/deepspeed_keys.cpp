// The keys of DeepSpeed's JSON (www.deepspeed.ai/docs/config-json; DeepSpeedZeroConfig and its neighbours in
// DeepSpeed), and the parameters of its optimizers.
#include "config/deepspeed_keys.h"

#include <algorithm>
#include <array>

namespace heddle {
namespace {

using namespace std::string_view_literals;
using Rule = ValueRule;
using Key = DeepSpeedKey;
using Auto = DeepSpeedKey::Auto;
using Effect = DeepSpeedKey::Effect;

constexpr double kMostRows = 0x1p20, kMostRanks = 0x1p20;

constexpr std::array kDevices = {"none"sv, "cpu"sv, "nvme"sv};
constexpr std::array kTypes = {"fp32"sv, "fp16"sv, "bf16"sv};

// Why a key changes nothing.
constexpr auto kByUnit = "gradients and weights travel by unit of the model, in the order of the step program"sv;
constexpr auto kAsUsed = "weights are gathered shortly before their unit runs and released behind it"sv;
constexpr auto kOwnPrinting = "logging_steps decides what is printed"sv;
constexpr auto kOwnTimes = "metrics.jsonl has the time of each part of every step"sv;
constexpr auto kOwnRecompute = "gradient_checkpointing and recompute decide what is recomputed, as in the Trainer"sv;
constexpr auto kOwnTransfers = "transfers are part of the step program, which sizes its own buffers"sv;
constexpr auto kOwnAdam = "there is one of each optimizer"sv;
constexpr auto kAlwaysWhole = "the exported model is always whole"sv;
constexpr auto kOnlyPyTorch = "it concerns PyTorch's modules"sv;
constexpr auto kExactMean = "gradients are summed in fp32 and divided once"sv;
constexpr auto kOwnFiles = "events go to runs/ in output_dir"sv;
// Why a key is refused.
constexpr auto kFp32Masters = "master weights, gradient sums and optimizer states are fp32"sv;
constexpr auto kFp32Sums = "gradients are reduced in fp32"sv;
constexpr auto kNotAdam = "it is a parameter of another optimizer"sv;
constexpr auto kExactValues = "it changes the values that ranks exchange, and results must not depend on the layout"sv;
constexpr auto kNotDeepSpeedFiles = "checkpoints are Heddle's own"sv;
constexpr auto kOtherTraining = "it changes what is trained, and Heddle does not have it"sv;
constexpr auto kNoNetwork = "nothing is sent over the network; metrics.jsonl and TensorBoard have the figures"sv;
constexpr auto kNoExperts = "there is no layout of experts over ranks"sv;

constexpr Key none(std::string_view path, ValueRule rule, std::string_view why) {
  return {.path = path, .rule = rule, .effect = Effect::none, .why = why};
}
constexpr Key none_or_auto(std::string_view path, ValueRule rule, std::string_view why) {
  return {.path = path, .rule = rule, .automatic = Auto::rule, .effect = Effect::none, .why = why};
}
constexpr Key only(std::string_view path, ValueRule rule, std::string_view values, std::string_view why) {
  return {.path = path, .rule = rule, .effect = Effect::refused, .only = values, .why = why};
}
constexpr Key refused(std::string_view path, std::string_view why) {
  return {.path = path, .effect = Effect::refused, .why = why};
}
constexpr Key object(std::string_view path) { return {.path = path, .rule = Rule::map()}; }
/// A section whose keys are not listed.
constexpr Key section_without_effect(std::string_view path, std::string_view why) {
  return {.path = path, .rule = Rule::map(), .effect = Effect::none, .why = why, .is_free_form = true};
}
constexpr Key refused_section(std::string_view path, std::string_view why) {
  return {.path = path, .rule = Rule::map(), .effect = Effect::refused, .why = why, .is_free_form = true};
}

constexpr std::array kCurriculumSchedules = {"fixed_linear"sv, "fixed_root"sv, "fixed_discrete"sv};

constexpr std::array kKeys = {
    Key{"train_batch_size", Rule::whole(1, 0x1p60), {}, Auto::rule},
    Key{"train_micro_batch_size_per_gpu", Rule::whole(1, kMostRows), "per_device_train_batch_size", Auto::rule},
    Key{"gradient_accumulation_steps", Rule::whole(1, kMostRows), "gradient_accumulation_steps", Auto::rule},
    Key{"gradient_clipping", Rule::number(0), "max_grad_norm", Auto::run_key},

    object("fp16"),
    Key{"fp16.enabled", Rule::boolean(), "fp16", Auto::run_key},
    none("fp16.auto_cast", Rule::boolean(), "inputs are token ids, which no cast concerns"),
    Key{"fp16.loss_scale", Rule::number(0, 0x1p120)},
    Key{"fp16.initial_scale_power", Rule::whole(0, 120)},
    Key{"fp16.loss_scale_window", Rule::whole(1, 0x1p53)},
    Key{"fp16.hysteresis", Rule::whole(1, 0x1p30)},
    Key{"fp16.consecutive_hysteresis", Rule::boolean()},
    Key{"fp16.min_loss_scale", Rule::positive()},
    none("fp16.fused_mode", Rule::boolean(), kOwnAdam),
    only("fp16.fp16_master_weights_and_grads", Rule::boolean(), "false", kFp32Masters),
    object("bf16"),
    Key{"bf16.enabled", Rule::boolean(), "bf16", Auto::run_key},
    only("bf16.bf16_master_weights_and_grads", Rule::boolean(), "false", kFp32Masters),
    only("bf16.bf16_optimizer_states", Rule::boolean(), "false", kFp32Masters),
    none("bf16.immediate_grad_update", Rule::boolean(), "gradients are summed in fp32 as each product writes them"),
    none("bf16.check_grad_overflow", Rule::boolean(), "a step with a non-finite gradient is always skipped"),
    object("data_types"),
    only("data_types.grad_accum_dtype", Rule::one_of(kTypes).or_null(), "fp32|null", kFp32Masters),
    refused_section("amp", "Apex is PyTorch's; bf16 and fp16 are here"),
    refused_section("torch_autocast", "bf16 and fp16 decide the precision of each operation"),

    object("optimizer"),
    Key{"optimizer.type", Rule::text(), "optim"},
    object("optimizer.params"),
    Key{"optimizer.params.lr", Rule::number(0), "learning_rate", Auto::run_key},
    Key{"optimizer.params.betas", Rule::number_list(2, 0, 1), {}, Auto::run_key},
    Key{"optimizer.params.eps", Rule::number(0), "adam_epsilon", Auto::run_key},
    Key{"optimizer.params.weight_decay", Rule::number(0), "weight_decay", Auto::run_key},
    only("optimizer.params.bias_correction", Rule::boolean(), "true", "AdamW corrects the bias of its moments"),
    only("optimizer.params.adam_w_mode", Rule::boolean(), "true", "weight decay is decoupled"),
    only("optimizer.params.amsgrad", Rule::boolean(), "false", "AdamW keeps two moments"),
    only("optimizer.params.max_grad_norm", Rule::number(0), "0|0.0", "gradient_clipping is its place"),
    only("optimizer.params.fp32_optimizer_states", Rule::boolean(), "true", kFp32Masters),
    none("optimizer.params.torch_adam", Rule::boolean(), kOwnAdam),
    none("optimizer.params.fused", Rule::boolean(), kOwnAdam),
    refused("optimizer.params.freeze_step", kNotAdam),
    refused("optimizer.params.cuda_aware", kNotAdam),
    refused("optimizer.params.comm_backend_name", kNotAdam),
    refused("optimizer.params.var_freeze_step", kNotAdam),
    refused("optimizer.params.var_update_scaler", kNotAdam),
    refused("optimizer.params.local_step_scaler", kNotAdam),
    refused("optimizer.params.local_step_clipper", kNotAdam),
    refused("optimizer.params.max_coeff", kNotAdam),
    refused("optimizer.params.min_coeff", kNotAdam),
    refused("optimizer.params.coeff_beta", kNotAdam),
    refused("optimizer.params.factor_max", kNotAdam),
    refused("optimizer.params.factor_min", kNotAdam),
    refused("optimizer.params.factor_threshold", kNotAdam),
    Key{"optimizer.params.momentum", Rule::number(0), "optim_args"},
    Key{"optimizer.params.dampening", Rule::number(0), "optim_args"},
    Key{"optimizer.params.nesterov", Rule::boolean(), "optim_args"},
    none("optimizer.legacy_fusion", Rule::boolean(), kOwnAdam),
    none("zero_allow_untested_optimizer", Rule::boolean(), kOwnAdam),
    none("zero_force_ds_cpu_optimizer", Rule::boolean(), kOwnAdam),
    object("scheduler"),
    Key{"scheduler.type", Rule::text()},
    object("scheduler.params"),  // its keys: config/schedule_names.cpp

    object("zero_optimization"),
    Key{"zero_optimization.stage", Rule::whole(0, 3), "zero_stage"},
    Key{"zero_optimization.stage3_param_persistence_threshold", Rule::whole(0), {}, Auto::rule},
    none_or_auto("zero_optimization.stage3_model_persistence_threshold", Rule::whole(0),
                 "stage3_param_persistence_threshold decides"),
    none_or_auto("zero_optimization.stage3_prefetch_bucket_size", Rule::whole(0),
                 "the weights of the next unit are gathered while one is computed"),
    Key{"zero_optimization.overlap_comm", Rule::boolean()},
    none("zero_optimization.allgather_partitions", Rule::boolean(), kByUnit),
    none_or_auto("zero_optimization.allgather_bucket_size", Rule::whole(0), kByUnit),
    none("zero_optimization.reduce_scatter", Rule::boolean(), kByUnit),
    none_or_auto("zero_optimization.reduce_bucket_size", Rule::whole(0), kByUnit),
    none("zero_optimization.use_multi_rank_bucket_allreduce", Rule::boolean(), kByUnit),
    none("zero_optimization.contiguous_gradients", Rule::boolean(), kByUnit),
    none("zero_optimization.round_robin_gradients", Rule::boolean(), kByUnit),
    none_or_auto("zero_optimization.sub_group_size", Rule::whole(0), kByUnit),
    none("zero_optimization.legacy_stage1", Rule::boolean(), kByUnit),
    none_or_auto("zero_optimization.stage3_max_live_parameters", Rule::whole(0), kAsUsed),
    none_or_auto("zero_optimization.stage3_max_reuse_distance", Rule::whole(0), kAsUsed),
    none("zero_optimization.stage3_module_granularity_threshold", Rule::whole(0), kAsUsed),
    none("zero_optimization.stage3_use_all_reduce_for_fetch_params", Rule::boolean(), kAsUsed),
    none("zero_optimization.stage3_allgather_sequential", Rule::boolean(), kAsUsed),
    none("zero_optimization.stage3_partition_stream_chunk_size", Rule::whole(0), "shards are read from the file"),
    none_or_auto("zero_optimization.stage3_gather_16bit_weights_on_model_save", Rule::boolean(), kAlwaysWhole),
    none("zero_optimization.load_from_fp32_weights", Rule::boolean(), "checkpoints hold the fp32 master weights"),
    none("zero_optimization.elastic_checkpoint", Rule::boolean(), "any number of ranks may resume a checkpoint"),
    none("zero_optimization.pipeline_loading_checkpoint", Rule::boolean(), "shards are read from the file"),
    none("zero_optimization.ignore_unused_parameters", Rule::boolean(), "the step program uses every parameter"),
    none("zero_optimization.memory_efficient_linear", Rule::boolean(), kOnlyPyTorch),
    none("zero_optimization.override_module_apply", Rule::boolean(), kOnlyPyTorch),
    none("zero_optimization.log_trace_cache_warnings", Rule::boolean(), kOnlyPyTorch),
    none("zero_optimization.enable_sanity_checks", Rule::boolean(), kOnlyPyTorch),
    none("zero_optimization.save_muon_momentum_buffer_in_memory", Rule::boolean(), kOwnAdam),
    section_without_effect("zero_optimization.leaf_module", kOnlyPyTorch),
    only("zero_optimization.zero_hpz_partition_size", Rule::whole(0, kMostRanks), "0|1", "shards have one copy"),
    only("zero_optimization.mics_shard_size", Rule::whole(-1, kMostRanks), "-1", "shards have one copy"),
    only("zero_optimization.mics_hierarchical_params_gather", Rule::boolean(), "false", "shards have one copy"),
    only("zero_optimization.zero_quantized_weights", Rule::boolean(), "false", kExactValues),
    only("zero_optimization.zero_quantized_nontrainable_weights", Rule::boolean(), "false", kExactValues),
    only("zero_optimization.zero_quantized_gradients", Rule::boolean(), "false", kExactValues),
    refused_section("zero_optimization.zeropp_loco_param", kExactValues),
    refused_section("zero_optimization.zenflow", "it updates some weights with old gradients"),
    object("zero_optimization.offload_optimizer"),
    Key{"zero_optimization.offload_optimizer.device", Rule::one_of(kDevices), "offload_optimizer"},
    Key{"zero_optimization.offload_optimizer.nvme_path", Rule::text(), "nvme_path"},
    only("zero_optimization.offload_optimizer.ratio", Rule::number(0, 1), "1|1.0",
         "all optimizer states are offloaded"),
    none("zero_optimization.offload_optimizer.pin_memory", Rule::boolean(), kOwnTransfers),
    none("zero_optimization.offload_optimizer.buffer_count", Rule::whole(0), kOwnTransfers),
    none("zero_optimization.offload_optimizer.fast_init", Rule::boolean(), kOwnTransfers),
    none("zero_optimization.offload_optimizer.pipeline_read", Rule::boolean(), kOwnTransfers),
    none("zero_optimization.offload_optimizer.pipeline_write", Rule::boolean(), kOwnTransfers),
    none("zero_optimization.offload_optimizer.super_offload", Rule::boolean(), kOwnTransfers),
    none("zero_optimization.offload_optimizer.convert_grad_on_cpu", Rule::boolean(), kOwnTransfers),
    none("zero_optimization.offload_optimizer.cpuadam_cores_perc", Rule::number(0, 1), "threads decides"),
    object("zero_optimization.offload_param"),
    Key{"zero_optimization.offload_param.device", Rule::one_of(kDevices), "offload_param"},
    Key{"zero_optimization.offload_param.nvme_path", Rule::text(), "nvme_path"},
    none("zero_optimization.offload_param.pin_memory", Rule::boolean(), kOwnTransfers),
    none("zero_optimization.offload_param.buffer_count", Rule::whole(0), kOwnTransfers),
    none_or_auto("zero_optimization.offload_param.buffer_size", Rule::whole(0), kOwnTransfers),
    none("zero_optimization.offload_param.max_in_cpu", Rule::whole(0), kOwnTransfers),
    object("aio"),
    Key{"aio.block_size", Rule::whole(4096, 0x1p30)},
    Key{"aio.queue_depth", Rule::whole(1, 1024)},
    Key{"aio.intra_op_parallelism", Rule::whole(1, 16)},
    none("aio.thread_count", Rule::whole(1), "DeepSpeed does not read it either; intra_op_parallelism took its place"),
    Key{"aio.single_submit", Rule::boolean()},
    Key{"aio.overlap_events", Rule::boolean()},
    none("aio.use_gds", Rule::boolean(), "there is no CUDA device that the disk could write to"),

    Key{"sequence_parallel_size", Rule::whole(1, kMostRanks), "context_parallel"},
    object("tensor_parallel"),
    Key{"tensor_parallel.autotp_size", Rule::whole(1, kMostRanks), "tensor_parallel"},
    refused_section("pipeline", "pipeline_parallel is the run file's key"),
    refused_section("expert_parallel", kNoExperts),
    only("use_data_before_expert_parallelism", Rule::boolean(), "false", kNoExperts),
    none("prescale_gradients", Rule::boolean(), kExactMean),
    none("gradient_predivide_factor", Rule::positive(), kExactMean),
    none("sparse_gradients", Rule::boolean(), "gradients of embeddings are dense; the values are the same"),
    none("disable_allgather", Rule::boolean(), kByUnit),
    only("communication_data_type", Rule::one_of(kTypes).or_null(), "fp32|null", kFp32Sums),
    only("seq_parallel_communication_data_type", Rule::one_of(kTypes), "fp32", kFp32Sums),
    only("dataloader_drop_last", Rule::boolean(), "false", "the last step of an epoch takes the rows that are left"),

    object("activation_checkpointing"),
    none("activation_checkpointing.partition_activations", Rule::boolean(), kOwnRecompute),
    none("activation_checkpointing.cpu_checkpointing", Rule::boolean(), kOwnRecompute),
    none("activation_checkpointing.contiguous_memory_optimization", Rule::boolean(), kOwnRecompute),
    none("activation_checkpointing.number_checkpoints", Rule::whole(1).or_null(), kOwnRecompute),
    none("activation_checkpointing.synchronize_checkpoint_boundary", Rule::boolean(), kOwnRecompute),
    none("activation_checkpointing.profile", Rule::boolean(), kOwnRecompute),
    object("checkpoint"),
    none("checkpoint.tag_validation", Rule::text(), "ranks agree on a checkpoint's step before it counts"),
    only("checkpoint.load_universal", Rule::boolean(), "false", kNotDeepSpeedFiles),
    only("checkpoint.use_node_local_storage", Rule::boolean(), "false", kNotDeepSpeedFiles),
    section_without_effect("checkpoint.parallel_write", "every rank writes its own shard"),
    refused_section("checkpoint.writer", kNotDeepSpeedFiles),
    refused_section("nebula", kNotDeepSpeedFiles),
    refused_section("datastates", kNotDeepSpeedFiles),

    none_or_auto("steps_per_print", Rule::whole(1).or_null(), kOwnPrinting),
    none("wall_clock_breakdown", Rule::boolean(), kOwnTimes),
    none("memory_breakdown", Rule::boolean(), "memory.json has the bytes of every class"),
    none("dump_state", Rule::boolean(), "heddle config prints the configuration"),
    object("tensorboard"),
    Key{"tensorboard.enabled", Rule::boolean(), "report_to"},
    none("tensorboard.output_path", Rule::text(), kOwnFiles),
    none("tensorboard.job_name", Rule::text(), kOwnFiles),
    section_without_effect("csv_monitor", "metrics.jsonl has the figures of every step"),
    section_without_effect("monitor_config", "DeepSpeed reads its monitors at the top level only"),
    refused_section("wandb", kNoNetwork),
    refused_section("comet", kNoNetwork),
    refused_section("trackio", kNoNetwork),
    section_without_effect("comms_logger", kOwnTimes),
    section_without_effect("comms_config", kOwnTimes),
    section_without_effect("timers", kOwnTimes),
    section_without_effect("flops_profiler", "metrics.jsonl has the tokens per second of every step"),

    section_without_effect("compile", "every step is compiled to a program before it runs"),
    none("graph_harvesting", Rule::boolean(), "every step is compiled to a program before it runs"),
    none("vocabulary_size", Rule::whole(1).or_null(), "the model's config has it"),
    none("cuda_visible_devices", Rule::whole(0), "DeepSpeed does not read it either"),

    object("curriculum_learning"),
    Key{"curriculum_learning.enabled", Rule::boolean()},
    only("curriculum_learning.curriculum_type", Rule::text(), "seqlen",
         "rows differ in no difficulty but their length"),
    Key{"curriculum_learning.min_difficulty", Rule::whole(1, 0x1p30)},
    Key{"curriculum_learning.max_difficulty", Rule::whole(1, 0x1p30)},
    Key{"curriculum_learning.schedule_type", Rule::one_of(kCurriculumSchedules)},
    object("curriculum_learning.schedule_config"),
    Key{"curriculum_learning.schedule_config.total_curriculum_step", Rule::whole(1, 0x1p53)},
    Key{"curriculum_learning.schedule_config.difficulty_step", Rule::whole(1, 0x1p30)},
    Key{"curriculum_learning.schedule_config.root_degree", Rule::positive()},
    Key{"curriculum_learning.schedule_config.difficulty", Rule::whole_list(1, 0x1p30)},
    Key{"curriculum_learning.schedule_config.max_step", Rule::whole_list(1, 0x1p53)},

    refused_section("autotuning", "heddle plan says what fits; one run is trained"),
    refused_section("elasticity", "the batch size does not follow the number of ranks"),
    refused_section("sparse_attention", kOtherTraining),
    refused_section("data_efficiency", kOtherTraining),
    refused_section("progressive_layer_drop", kOtherTraining),
    refused_section("eigenvalue", kOtherTraining),
    refused_section("quantize_training", kOtherTraining),
    refused_section("compression_training", kOtherTraining),
    refused_section("weight_quantization", kOtherTraining),
    refused_section("hybrid_engine", "generation is heddle generate's"),
};

constexpr std::array kRenames = {
    DeepSpeedRename{"bfloat16", "bf16"},
    DeepSpeedRename{"zero_optimization.cpu_offload", "zero_optimization.offload_optimizer.device", true},
    DeepSpeedRename{"zero_optimization.cpu_offload_param", "zero_optimization.offload_param.device", true},
    DeepSpeedRename{"zero_optimization.cpu_offload_use_pin_memory", "zero_optimization.offload_optimizer.pin_memory"},
    DeepSpeedRename{"zero_optimization.stage3_gather_fp16_weights_on_model_save",
                    "zero_optimization.stage3_gather_16bit_weights_on_model_save"},
    DeepSpeedRename{"zero_optimization.gather_16bit_weights_on_model_save",
                    "zero_optimization.stage3_gather_16bit_weights_on_model_save"},
    DeepSpeedRename{"zero_optimization.max_live_parameters", "zero_optimization.stage3_max_live_parameters"},
    DeepSpeedRename{"zero_optimization.max_reuse_distance", "zero_optimization.stage3_max_reuse_distance"},
    DeepSpeedRename{"zero_optimization.prefetch_bucket_size", "zero_optimization.stage3_prefetch_bucket_size"},
    DeepSpeedRename{"zero_optimization.param_persistence_threshold",
                    "zero_optimization.stage3_param_persistence_threshold"},
    DeepSpeedRename{"zero_optimization.model_persistence_threshold",
                    "zero_optimization.stage3_model_persistence_threshold"},
    DeepSpeedRename{"seq_parallel_comm_data_type", "seq_parallel_communication_data_type"},
};

}  // namespace

std::span<const DeepSpeedKey> deepspeed_keys() { return kKeys; }

const DeepSpeedKey* find_deepspeed_key(std::string_view path) {
  const auto at = std::find_if(kKeys.begin(), kKeys.end(), [&](const Key& key) { return key.path == path; });
  return at == kKeys.end() ? nullptr : &*at;
}

std::vector<std::string_view> deepspeed_names(std::string_view section) {
  std::vector<std::string_view> names;
  for (const auto& key : kKeys) {
    const auto dot = key.path.rfind('.');
    const auto parent = dot == std::string_view::npos ? std::string_view() : key.path.substr(0, dot);
    if (parent == section) names.push_back(dot == std::string_view::npos ? key.path : key.path.substr(dot + 1));
  }
  return names;
}

std::span<const DeepSpeedRename> deepspeed_renames() { return kRenames; }

}  // namespace heddle
