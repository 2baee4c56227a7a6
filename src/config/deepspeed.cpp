#include "config/deepspeed.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <tuple>

#include "base/error.h"
#include "config/deepspeed_batch.h"
#include "config/deepspeed_curriculum.h"
#include "config/deepspeed_reader.h"
#include "config/schedule_names.h"

namespace heddle {
namespace {

using Kind = SourceNode::Kind;
using namespace std::string_view_literals;

bool is_same(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) return a.get<double>() == b.get<double>();
  return a == b;
}

/// Hugging Face's Trainer looks for the size where a config may have it.
std::int64_t model_hidden_size(const RunSettings& settings, const SourceNode& node, const std::string& path) {
  const auto& name = settings.at("config_name").value.is_null() ? settings.at("model_name_or_path").value
                                                                : settings.at("config_name").value;
  if (name.is_null())
    fail("{}: {} is \"auto\", which needs the model: model_name_or_path is not set", node.where, path);
  std::filesystem::path file = name.get<std::string>();
  std::error_code error;
  if (std::filesystem::is_directory(file, error)) file /= "config.json";
  const auto config = read_json_file(file);
  for (const auto* pointer : {"/hidden_size", "/n_embd", "/d_model", "/text_config/hidden_size"}) {
    const Json::json_pointer at(pointer);
    if (config.is_object() && config.contains(at) && config[at].is_number_integer()) {
      const auto size = config[at].get<std::int64_t>();
      if (size > 0 && size < (std::int64_t{1} << 24)) return size;
    }
  }
  fail("{}: {} is \"auto\", which needs hidden_size in {}", node.where, path, file.string());
}

/// The row of a key, or of the section without rows that it lies in.
const DeepSpeedKey* find_key_or_section(std::string_view path) {
  while (true) {
    if (const auto* key = find_deepspeed_key(path)) return key;
    const auto dot = path.rfind('.');
    if (dot == std::string_view::npos) fail("internal: {} is not a key of DeepSpeed's JSON", path);
    path = path.substr(0, dot);
  }
}

class Resolver {
 public:
  Resolver(const DeepSpeedReader& reader, RunSettings& settings) : reader_(reader), settings_(settings) {}

  DeepSpeedOutcome resolve() {
    resolve_layout();
    resolve_batch(reader_, settings_);
    // What is "auto" takes the run file's keys, which all that is given explicitly has set by then.
    for (const auto& [path, node] : reader_.leaves()) {
      if (!is_auto_text(*node)) resolve_leaf(path, *node);
    }
    if (!optim_args_.empty()) mirror("optim_args", optim_args_, "optimizer.params", *reader_.find("optimizer.type"));
    read_schedule();
    for (const auto& [path, node] : reader_.leaves()) {
      if (is_auto_text(*node)) resolve_leaf(path, *node);
    }
    check_devices();
    check_offload_ratio();
    read_loss_scaling();
    read_zero_options();
    read_aio_options();
    outcome_.curriculum = read_curriculum(reader_);
    return std::move(outcome_);
  }

 private:
  void show(const std::string& path, Json value, std::string origin) {
    settings_.add("deepspeed." + path, {std::move(value), std::move(origin), true});
  }
  static std::string origin_of(const SourceNode& node) { return fmt::format("deepspeed ({})", node.where); }
  static std::string origin_of(const SourceNode& node, std::string_view path) {
    return fmt::format("deepspeed ({}: {})", node.where, path);
  }

  std::string by_trainer(std::string_view run_key) const {
    return fmt::format("Trainer's rule ({}: {})", run_key, settings_.at(run_key).origin);
  }

  /// The run file's key takes the value; if it was set there, it must be the same.
  void mirror(const std::string& run_key, const Json& value, const std::string& path, const SourceNode& node) {
    auto& setting = settings_.at(run_key);
    if (setting.is_set && !is_same(setting.value, value)) {
      fail("{}: {} is {}, but {} is {} ({})", node.where, path, plain_text(value), run_key, plain_text(setting.value),
           setting.origin);
    }
    if (!setting.is_set) setting = {value, origin_of(node, path), true};
  }

  /// DeepSpeed's Lion has betas of its own where none are given.
  void mirror_optimizer(const std::string& type, const std::string& path, const SourceNode& node) {
    const std::string name(optimizer_of_deepspeed(type));
    mirror("optim", name, path, node);
    auto& beta2 = settings_.at("adam_beta2");
    if (name == "lion" && reader_.find("optimizer.params.betas") == nullptr && !beta2.is_set)
      beta2 = {0.99, "DeepSpeed's default", true};
  }

  /// The batch triple counts the ranks that see different rows.
  void resolve_layout() {
    for (const auto& [path, run_key] : {std::pair{"sequence_parallel_size", "context_parallel"},
                                        std::pair{"tensor_parallel.autotp_size", "tensor_parallel"}}) {
      if (reader_.is_explicit(path)) mirror(run_key, reader_.value(path), path, *reader_.find(path));
    }
  }

  void resolve_leaf(const std::string& path, const SourceNode& node) {
    if (is_batch_key(path)) return;
    const auto* key = find_key_or_section(path);
    if (key->effect == DeepSpeedKey::Effect::none) outcome_.without_effect[std::string(key->why)].emplace_back(path);
    if (key->is_free_form) return show(path, read_untyped(node), origin_of(node));
    if (is_auto_text(node)) return resolve_auto(*key, path, node);
    const auto value = reader_.value(path);
    show(path, value, origin_of(node));
    if (path == "optimizer.params.betas") {
      mirror("adam_beta1", value[0], path, node);
      mirror("adam_beta2", value[1], path, node);
    } else if (path == "optimizer.type") {
      mirror_optimizer(value.get<std::string>(), path, node);
    } else if (path == "tensorboard.enabled") {
      if (value == true) mirror("report_to", "tensorboard", path, node);
    } else if (key->run_key == "optim_args") {
      optim_args_ +=
          fmt::format("{}{}={}", optim_args_.empty() ? "" : ",", path.substr(path.rfind('.') + 1), plain_text(value));
    } else if (!key->run_key.empty()) {
      mirror(std::string(key->run_key), value, path, node);
    }
  }

  void resolve_auto(const DeepSpeedKey& key, const std::string& path, const SourceNode& node) {
    if (path == "optimizer.params.betas") {
      return show(path, {settings_.at("adam_beta1").value, settings_.at("adam_beta2").value},
                  fmt::format("Trainer's rule (adam_beta1: {}, adam_beta2: {})", settings_.at("adam_beta1").origin,
                              settings_.at("adam_beta2").origin));
    }
    if (key.automatic == DeepSpeedKey::Auto::run_key) {
      return show(path, settings_.at(key.run_key).value, by_trainer(key.run_key));
    }
    using Default = std::pair<std::string_view, std::int64_t>;
    constexpr std::array kDefaults = {
        Default{"zero_optimization.allgather_bucket_size", 500'000'000},
        Default{"zero_optimization.sub_group_size", 1'000'000'000},
        Default{"zero_optimization.stage3_max_live_parameters", 1'000'000'000},
        Default{"zero_optimization.stage3_max_reuse_distance", 1'000'000'000},
        Default{"zero_optimization.stage3_model_persistence_threshold", std::numeric_limits<std::int64_t>::max()},
        Default{"zero_optimization.offload_param.buffer_size", 100'000'000},
        Default{"steps_per_print", 10}};
    for (const auto& [name, value] : kDefaults) {
      if (path == name) return show(path, value, "DeepSpeed's default");
    }
    if (path.ends_with("_on_model_save")) return show(path, false, "DeepSpeed's default");
    const auto size = model_hidden_size(settings_, node, path);
    const auto value = path.ends_with("persistence_threshold") ? 10 * size
                       : path.ends_with("prefetch_bucket_size")
                           ? static_cast<std::int64_t>(0.9 * static_cast<double>(size * size))
                           : size * size;
    show(path, value, "Trainer's rule (the model's hidden_size)");
  }

  /// The device of each offload section, and the folder that nvme needs.
  void check_devices() {
    for (const auto* run_key : {"offload_optimizer", "offload_param"}) {
      const auto section = fmt::format("zero_optimization.{}", run_key);
      if (settings_.at(run_key).value != "nvme" || !settings_.at("nvme_path").value.is_null()) continue;
      const auto* device = reader_.find(section + ".device");
      fail("{}: {}.device is nvme; expected a folder in {}.nvme_path",
           device ? device->where : std::string("deepspeed"), section, section);
    }
  }

  /// DeepSpeed offloads a part of the optimizer states (Twin-Flow) at stage 3 only.
  void check_offload_ratio() {
    const std::string_view path = "zero_optimization.offload_optimizer.ratio";
    if (!reader_.is_explicit(path) || settings_.at("zero_stage").value == 3) return;
    const auto ratio = reader_.value(path);
    if (ratio.get<double>() != 1) {
      fail("{}: {} is {}, which needs zero_optimization.stage 3; it is {}", reader_.find(path)->where, path,
           plain_text(ratio), plain_text(settings_.at("zero_stage").value));
    }
  }

  void read_loss_scaling() {
    const auto get = [&](const char* name, auto& target) {
      const auto path = fmt::format("fp16.{}", name);
      using Type = std::remove_reference_t<decltype(target)>;
      if (reader_.is_explicit(path)) target = reader_.value(path).get<Type>();
    };
    auto& scaling = outcome_.loss_scaling;
    get("loss_scale", scaling.loss_scale);
    get("initial_scale_power", scaling.initial_scale_power);
    get("loss_scale_window", scaling.loss_scale_window);
    get("hysteresis", scaling.hysteresis);
    get("consecutive_hysteresis", scaling.consecutive_hysteresis);
    get("min_loss_scale", scaling.min_loss_scale);
    if (scaling.loss_scale == 0 && reader_.is_explicit("fp16.min_loss_scale") &&
        scaling.min_loss_scale > std::ldexp(1.0, scaling.initial_scale_power)) {
      fail("{}: fp16.min_loss_scale is {}, above the first scale, 2^{} (fp16.initial_scale_power)",
           reader_.find("fp16.min_loss_scale")->where, scaling.min_loss_scale, scaling.initial_scale_power);
    }
  }

  /// What a section says of `name`, if it does; an "auto" is resolved by then.
  template <typename T>
  void read_option(std::string_view section, std::string_view name, T& target) const {
    const auto found = settings_.all().find(fmt::format("deepspeed.{}.{}", section, name));
    if (found != settings_.all().end()) found->second.value.get_to(target);
  }

  void read_zero_options() {
    constexpr auto kSection = "zero_optimization"sv;
    read_option(kSection, "stage3_param_persistence_threshold", outcome_.zero.param_persistence_threshold);
    read_option(kSection, "overlap_comm", outcome_.zero.overlap_comm);
  }

  void read_aio_options() {
    auto& aio = outcome_.aio;
    read_option("aio", "block_size", aio.block_size);
    read_option("aio", "queue_depth", aio.queue_depth);
    read_option("aio", "intra_op_parallelism", aio.intra_op_parallelism);
    read_option("aio", "single_submit", aio.single_submit);
    read_option("aio", "overlap_events", aio.overlap_events);
  }

  void read_schedule() {
    const auto* type = reader_.find("scheduler.type");
    const auto* arguments = reader_.schedule_arguments();
    if (type == nullptr) {
      if (arguments != nullptr) fail("{}: scheduler.params without scheduler.type", arguments->where);
      return;
    }
    ScheduleConfig schedule;
    schedule.deepspeed = true;
    schedule.type = type->text;
    schedule.warmup_steps = settings_.whole("warmup_steps");
    schedule.warmup_ratio = settings_.number("warmup_ratio");
    refuse_second_schedule(*type);
    if (arguments != nullptr) {
      for (const auto& [name, node] : arguments->entries) read_schedule_argument(schedule, name, node);
      mirror_rate(schedule, *arguments);
      mirror_warmup(schedule, *arguments);
    }
    const auto& where = type->where;
    check_schedule(schedule, settings_.number("learning_rate"), where, "scheduler.type", "scheduler.params");
    outcome_.schedule = std::move(schedule);
    outcome_.schedule_where = where;
  }

  void refuse_second_schedule(const SourceNode& type) {
    auto& name = settings_.at("lr_scheduler_type");
    // The pairs that the Trainer's documentation calls the same.
    const bool is_same_schedule = (type.text == "WarmupLR" && name.value == "constant_with_warmup") ||
                                  (type.text == "WarmupDecayLR" && name.value == "linear");
    if (name.is_set && !is_same_schedule) {
      fail("{}: scheduler.type is {}, but lr_scheduler_type is {} ({})", type.where, type.text, plain_text(name.value),
           name.origin);
    }
    const auto& arguments = settings_.at("lr_scheduler_kwargs");
    if (arguments.is_set) {
      fail("{}: scheduler and lr_scheduler_kwargs ({}) are both given", type.where, arguments.origin);
    }
    name = {type.text, origin_of(type, "scheduler.type"), true};
  }

  void read_schedule_argument(ScheduleConfig& schedule, const std::string& name, const SourceNode& node) {
    const auto path = "scheduler.params." + name;
    if (is_auto_text(node)) return read_auto_argument(schedule, name, path, node);
    if (node.kind == Kind::number) {
      const auto value = read_untyped(node);
      schedule.numbers[name] = value.get<double>();
      return show(path, value, origin_of(node));
    }
    if (node.kind != Kind::text && node.kind != Kind::boolean) {
      fail("{}: {} is {}; expected a number or text", node.where, path, describe(node));
    }
    schedule.words[name] = node.text;
    show(path, read_untyped(node), origin_of(node));
  }

  void read_auto_argument(ScheduleConfig& schedule, const std::string& name, const std::string& path,
                          const SourceNode& node) {
    const auto max_steps = settings_.whole("max_steps");
    if (name == "warmup_min_lr") {
      schedule.numbers[name] = 0;
      show(path, 0, "Trainer's rule (0)");
    } else if (name == "warmup_max_lr") {
      schedule.numbers[name] = settings_.number("learning_rate");
      show(path, settings_.at("learning_rate").value, by_trainer("learning_rate"));
    } else if (name == "total_num_steps") {  // absent: the run's, known once its rows are counted
      if (max_steps > 0) schedule.numbers[name] = static_cast<double>(max_steps);
      show(path, max_steps > 0 ? Json(max_steps) : Json(nullptr),
           max_steps > 0 ? by_trainer("max_steps") : "Trainer's rule (the steps of the run)");
    } else if (name == "warmup_num_steps") {
      const double ratio = schedule.warmup_ratio;
      const bool is_known = schedule.warmup_steps > 0 || ratio == 0 || max_steps > 0;
      schedule.has_warmup_of_run = !is_known;
      const auto steps = schedule.warmup_steps > 0
                             ? schedule.warmup_steps
                             : static_cast<std::int64_t>(std::ceil(ratio * static_cast<double>(max_steps)));
      if (is_known) schedule.numbers[name] = static_cast<double>(std::max<std::int64_t>(steps, 0));
      show(path, is_known ? Json(schedule.numbers[name] == 0 ? 0 : steps) : Json(nullptr),
           by_trainer(schedule.warmup_steps == 0 && ratio > 0 ? "warmup_ratio" : "warmup_steps"));
    } else {
      fail("{}: {} is \"auto\", which has no meaning there", node.where, path);
    }
  }

  /// WarmupLR and WarmupDecayLR bring their own highest rate. The Trainer wants it to be the run's learning_rate; where
  /// the JSON sets optimizer.params.lr itself, the two are its own affair.
  void mirror_rate(const ScheduleConfig& schedule, const SourceNode& arguments) {
    const auto* rate = arguments.find("warmup_max_lr");
    const bool has_own_rate = reader_.is_explicit("optimizer.params.lr");
    if (rate == nullptr || is_auto_text(*rate) || has_own_rate || !schedule.numbers.contains("warmup_max_lr")) return;
    mirror("learning_rate", schedule.numbers.at("warmup_max_lr"), "scheduler.params.warmup_max_lr", *rate);
  }

  void mirror_warmup(const ScheduleConfig& schedule, const SourceNode& arguments) {
    const auto* steps = arguments.find("warmup_num_steps");
    const auto& setting = settings_.at("warmup_steps");
    if (steps == nullptr || is_auto_text(*steps) || !setting.is_set || setting.value == 0) return;
    if (schedule.numbers.contains("warmup_num_steps")) {
      mirror("warmup_steps", read_untyped(*steps), "scheduler.params.warmup_num_steps", *steps);
    }
  }

  const DeepSpeedReader& reader_;
  RunSettings& settings_;
  std::string optim_args_;  // of optimizer.params
  DeepSpeedOutcome outcome_;
};

}  // namespace

DeepSpeedOutcome resolve_deepspeed(SourceNode root, RunSettings& settings) {
  const DeepSpeedReader reader(root);
  return Resolver(reader, settings).resolve();
}

}  // namespace heddle
