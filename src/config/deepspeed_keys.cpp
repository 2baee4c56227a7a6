// The keys of DeepSpeed's JSON (www.deepspeed.ai/docs/config-json), and the parameters of its Adam.
#include "config/deepspeed_keys.h"

#include <algorithm>
#include <array>

namespace heddle {
namespace {

using namespace std::string_view_literals;
using Rule = ValueRule;
using Key = DeepSpeedKey;
using Auto = DeepSpeedKey::Auto;

constexpr double kMostRows = 0x1p20;

constexpr std::array kDevices = {"none"sv, "cpu"sv, "nvme"sv};
constexpr std::array kTypes = {"fp32"sv, "fp16"sv, "bf16"sv};

constexpr auto kOwnBuckets = "the step program decides what is sent when"sv;
constexpr auto kOwnPrinting = "logging_steps decides what is printed"sv;
constexpr auto kOwnTimes = "metrics.jsonl has the times of every step"sv;
constexpr auto kOwnRecompute = "gradient_checkpointing and recompute decide what is recomputed"sv;
constexpr auto kOwnTransfers = "Heddle chooses its transfers itself"sv;
constexpr auto kAlwaysWhole = "the exported model is always whole"sv;

constexpr Key without_effect(std::string_view path, ValueRule rule, std::string_view why) {
  return {.path = path, .rule = rule, .without_effect = why};
}
constexpr Key without_effect_or_auto(std::string_view path, ValueRule rule, std::string_view why) {
  return {.path = path, .rule = rule, .automatic = Auto::rule, .without_effect = why};
}
constexpr Key only(std::string_view path, ValueRule rule, std::string_view values) {
  return {.path = path, .rule = rule, .only = values};
}
constexpr Key absent(std::string_view path) { return {.path = path, .rule = Rule::map(), .is_free_form = true}; }
constexpr Key object(std::string_view path) { return {.path = path, .rule = Rule::map()}; }

constexpr std::array kKeys = {
    Key{"train_batch_size", Rule::whole(1, 0x1p60), {}, Auto::rule},
    Key{"train_micro_batch_size_per_gpu", Rule::whole(1, kMostRows), "per_device_train_batch_size", Auto::rule},
    Key{"gradient_accumulation_steps", Rule::whole(1, kMostRows), "gradient_accumulation_steps", Auto::rule},
    Key{"gradient_clipping", Rule::number(0), "max_grad_norm", Auto::run_key},

    object("fp16"),
    Key{"fp16.enabled", Rule::boolean(), "fp16", Auto::run_key},
    only("fp16.auto_cast", Rule::boolean(), "false"),
    Key{"fp16.loss_scale", Rule::number(0, 0x1p120)},
    Key{"fp16.initial_scale_power", Rule::whole(0, 120)},
    Key{"fp16.loss_scale_window", Rule::whole(1, 0x1p53)},
    Key{"fp16.hysteresis", Rule::whole(1, 0x1p30)},
    Key{"fp16.consecutive_hysteresis", Rule::boolean()},
    Key{"fp16.min_loss_scale", Rule::positive()},
    only("fp16.fp16_master_weights_and_grads", Rule::boolean(), "false"),
    object("bf16"),
    Key{"bf16.enabled", Rule::boolean(), "bf16", Auto::run_key},
    only("bf16.bf16_master_weights_and_grads", Rule::boolean(), "false"),
    only("bf16.bf16_optimizer_states", Rule::boolean(), "false"),
    only("bf16.immediate_grad_update", Rule::boolean(), "true|false"),
    object("data_types"),
    only("data_types.grad_accum_dtype", Rule::one_of(kTypes).or_null(), "fp32|null"),

    object("optimizer"),
    Key{"optimizer.type", Rule::text()},
    object("optimizer.params"),
    Key{"optimizer.params.lr", Rule::number(0), "learning_rate", Auto::run_key},
    Key{"optimizer.params.betas", Rule::number_list(2, 0, 1), {}, Auto::run_key},
    Key{"optimizer.params.eps", Rule::number(0), "adam_epsilon", Auto::run_key},
    Key{"optimizer.params.weight_decay", Rule::number(0), "weight_decay", Auto::run_key},
    only("optimizer.params.bias_correction", Rule::boolean(), "true"),
    only("optimizer.params.adam_w_mode", Rule::boolean(), "true"),
    only("optimizer.params.amsgrad", Rule::boolean(), "false"),
    only("optimizer.params.max_grad_norm", Rule::number(0), "0|0.0"),  // gradient_clipping is its place
    without_effect("optimizer.params.torch_adam", Rule::boolean(), "Heddle has one Adam"),
    without_effect("optimizer.params.fused", Rule::boolean(), "Heddle has one Adam"),
    only("optimizer.legacy_fusion", Rule::boolean(), "false"),
    object("scheduler"),
    Key{"scheduler.type", Rule::text()},
    object("scheduler.params"),  // its keys: config/schedule_names.cpp

    object("zero_optimization"),
    Key{"zero_optimization.stage", Rule::whole(0, 3), "zero_stage"},
    without_effect("zero_optimization.allgather_partitions", Rule::boolean(), kOwnBuckets),
    without_effect_or_auto("zero_optimization.allgather_bucket_size", Rule::whole(0), kOwnBuckets),
    without_effect("zero_optimization.overlap_comm", Rule::boolean(), kOwnBuckets),
    without_effect("zero_optimization.reduce_scatter", Rule::boolean(), kOwnBuckets),
    without_effect_or_auto("zero_optimization.reduce_bucket_size", Rule::whole(0), kOwnBuckets),
    without_effect("zero_optimization.contiguous_gradients", Rule::boolean(), kOwnBuckets),
    without_effect("zero_optimization.round_robin_gradients", Rule::boolean(), kOwnBuckets),
    without_effect_or_auto("zero_optimization.sub_group_size", Rule::whole(0), kOwnBuckets),
    without_effect("zero_optimization.ignore_unused_parameters", Rule::boolean(), kOwnBuckets),
    without_effect_or_auto("zero_optimization.stage3_max_live_parameters", Rule::whole(0), kOwnBuckets),
    without_effect_or_auto("zero_optimization.stage3_max_reuse_distance", Rule::whole(0), kOwnBuckets),
    without_effect_or_auto("zero_optimization.stage3_prefetch_bucket_size", Rule::whole(0), kOwnBuckets),
    without_effect_or_auto("zero_optimization.stage3_param_persistence_threshold", Rule::whole(0), kOwnBuckets),
    without_effect_or_auto("zero_optimization.stage3_model_persistence_threshold", Rule::whole(0), kOwnBuckets),
    without_effect_or_auto("zero_optimization.stage3_gather_16bit_weights_on_model_save", Rule::boolean(),
                           kAlwaysWhole),
    object("zero_optimization.offload_optimizer"),
    Key{"zero_optimization.offload_optimizer.device", Rule::one_of(kDevices), "offload_optimizer"},
    Key{"zero_optimization.offload_optimizer.nvme_path", Rule::text(), "nvme_path"},
    without_effect("zero_optimization.offload_optimizer.pin_memory", Rule::boolean(), kOwnTransfers),
    without_effect("zero_optimization.offload_optimizer.buffer_count", Rule::whole(1), kOwnTransfers),
    without_effect("zero_optimization.offload_optimizer.fast_init", Rule::boolean(), kOwnTransfers),
    without_effect("zero_optimization.offload_optimizer.pipeline_read", Rule::boolean(), kOwnTransfers),
    without_effect("zero_optimization.offload_optimizer.pipeline_write", Rule::boolean(), kOwnTransfers),
    only("zero_optimization.offload_optimizer.ratio", Rule::number(0, 1), "1|1.0"),
    object("zero_optimization.offload_param"),
    Key{"zero_optimization.offload_param.device", Rule::one_of(kDevices), "offload_param"},
    Key{"zero_optimization.offload_param.nvme_path", Rule::text(), "nvme_path"},
    without_effect("zero_optimization.offload_param.pin_memory", Rule::boolean(), kOwnTransfers),
    without_effect("zero_optimization.offload_param.buffer_count", Rule::whole(1), kOwnTransfers),
    without_effect_or_auto("zero_optimization.offload_param.buffer_size", Rule::whole(1), kOwnTransfers),
    without_effect("zero_optimization.offload_param.max_in_cpu", Rule::whole(0), kOwnTransfers),
    absent("zero_optimization.zenflow"),
    without_effect("zero_allow_untested_optimizer", Rule::boolean(), "every optimizer here is tested"),
    without_effect("zero_force_ds_cpu_optimizer", Rule::boolean(), "Heddle has one Adam"),

    without_effect_or_auto("steps_per_print", Rule::whole(1), kOwnPrinting),
    without_effect("wall_clock_breakdown", Rule::boolean(), kOwnTimes),
    without_effect("memory_breakdown", Rule::boolean(), "memory.json has the bytes of every class"),
    without_effect("dump_state", Rule::boolean(), "heddle config prints the configuration"),
    only("prescale_gradients", Rule::boolean(), "false"),
    only("gradient_predivide_factor", Rule::number(0), "1|1.0"),
    only("sparse_gradients", Rule::boolean(), "false"),
    without_effect("disable_allgather", Rule::boolean(), kOwnBuckets),
    only("communication_data_type", Rule::one_of(kTypes).or_null(), "fp32|null"),
    only("seq_parallel_communication_data_type", Rule::one_of(kTypes), "fp32"),
    only("sequence_parallel_size", Rule::whole(1), "1"),

    object("activation_checkpointing"),
    without_effect("activation_checkpointing.partition_activations", Rule::boolean(), kOwnRecompute),
    without_effect("activation_checkpointing.cpu_checkpointing", Rule::boolean(), kOwnRecompute),
    without_effect("activation_checkpointing.contiguous_memory_optimization", Rule::boolean(), kOwnRecompute),
    without_effect("activation_checkpointing.number_checkpoints", Rule::whole(1).or_null(), kOwnRecompute),
    without_effect("activation_checkpointing.synchronize_checkpoint_boundary", Rule::boolean(), kOwnRecompute),
    without_effect("activation_checkpointing.profile", Rule::boolean(), kOwnRecompute),
    object("aio"),
    without_effect("aio.block_size", Rule::whole(1), kOwnTransfers),
    without_effect("aio.queue_depth", Rule::whole(1), kOwnTransfers),
    without_effect("aio.intra_op_parallelism", Rule::whole(1), kOwnTransfers),
    without_effect("aio.thread_count", Rule::whole(1), kOwnTransfers),
    without_effect("aio.single_submit", Rule::boolean(), kOwnTransfers),
    without_effect("aio.overlap_events", Rule::boolean(), kOwnTransfers),
    only("aio.use_gds", Rule::boolean(), "false"),
    object("comms_config"),
    without_effect("comms_config.verbose", Rule::boolean(), kOwnTimes),

    absent("tensor_parallel"),
    absent("torch_autocast"),
    absent("tensorboard"),
    absent("wandb"),
    absent("csv_monitor"),
    absent("monitor_config"),
    absent("comms_logger"),
    absent("flops_profiler"),
    absent("autotuning"),
    absent("elasticity"),
    absent("checkpoint"),
    absent("compile"),
    absent("sparse_attention"),
    absent("data_efficiency"),
    absent("curriculum_learning"),
    absent("progressive_layer_drop"),
    absent("eigenvalue"),
    absent("quantize_training"),
    absent("compression_training"),
    absent("hybrid_engine"),
    absent("pipeline"),
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
