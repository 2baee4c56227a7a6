#include "config/deepspeed.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <tuple>

#include "base/error.h"
#include "config/deepspeed_batch.h"
#include "config/deepspeed_reader.h"
#include "config/schedule_names.h"

namespace heddle {
namespace {

using Kind = SourceNode::Kind;
using namespace std::string_view_literals;

/// An untyped value of a section that is not in the table.
Json loose_value(const SourceNode& node) {
  if (node.kind == Kind::null) return nullptr;
  if (node.kind == Kind::boolean) return node.text == "true";
  if (node.kind == Kind::number) return read_value(node, ValueRule::number(-ValueRule::kUnbounded), "a number");
  if (node.kind == Kind::text) return node.text;
  auto value = node.kind == Kind::list ? Json::array() : Json::object();
  for (const auto& item : node.items) value.push_back(loose_value(item));
  for (const auto& [name, entry] : node.entries) value[name] = loose_value(entry);
  return value;
}

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

class Resolver {
 public:
  Resolver(const DeepSpeedReader& reader, RunSettings& settings) : reader_(reader), settings_(settings) {}

  DeepSpeedOutcome resolve() {
    resolve_batch(reader_, settings_);
    for (const auto& [path, node] : reader_.leaves()) resolve_leaf(path, *node);
    check_devices();
    check_offload_ratio();
    read_loss_scaling();
    read_schedule();
    return std::move(outcome_);
  }

 private:
  void show(const std::string& path, Json value, std::string origin) {
    settings_.add("deepspeed." + path, {std::move(value), std::move(origin), true});
  }
  static std::string origin_of(const SourceNode& node) { return fmt::format("deepspeed ({})", node.where); }

  /// The run file's key takes the value; if it was set there, it must be the same.
  void mirror(const std::string& run_key, const Json& value, const std::string& path, const SourceNode& node) {
    auto& setting = settings_.at(run_key);
    if (setting.is_set && !is_same(setting.value, value)) {
      fail("{}: {} is {}, but {} is {} ({})", node.where, path, plain_text(value), run_key, plain_text(setting.value),
           setting.origin);
    }
    if (!setting.is_set) setting = {value, origin_of(node), true};
  }

  void resolve_leaf(const std::string& path, const SourceNode& node) {
    const auto* key = find_deepspeed_key(path);
    if (key == nullptr || key->is_free_form) return show(path, loose_value(node), origin_of(node));
    if (is_batch_key(path)) return;
    if (!key->without_effect.empty()) outcome_.without_effect.push_back(path);
    if (is_auto_text(node)) return resolve_auto(*key, path, node);
    const auto value = reader_.value(path);
    show(path, value, origin_of(node));
    if (path == "optimizer.params.betas") {
      mirror("adam_beta1", value[0], path, node);
      mirror("adam_beta2", value[1], path, node);
    } else if (path == "optimizer.type") {
      mirror("optim", "adamw", path, node);
    } else if (!key->run_key.empty()) {
      mirror(std::string(key->run_key), value, path, node);
    }
  }

  void resolve_auto(const DeepSpeedKey& key, const std::string& path, const SourceNode& node) {
    if (path == "optimizer.params.betas") {
      return show(path, {settings_.at("adam_beta1").value, settings_.at("adam_beta2").value},
                  "Trainer's rule (adam_beta1, adam_beta2)");
    }
    if (key.automatic == DeepSpeedKey::Auto::run_key) {
      return show(path, settings_.at(key.run_key).value, fmt::format("Trainer's rule ({})", key.run_key));
    }
    constexpr std::array kDefaults = {std::pair{"zero_optimization.allgather_bucket_size"sv, 500'000'000},
                                      std::pair{"zero_optimization.sub_group_size"sv, 1'000'000'000},
                                      std::pair{"zero_optimization.stage3_max_live_parameters"sv, 1'000'000'000},
                                      std::pair{"zero_optimization.stage3_max_reuse_distance"sv, 1'000'000'000},
                                      std::pair{"zero_optimization.stage3_model_persistence_threshold"sv, 2147483647},
                                      std::pair{"zero_optimization.offload_param.buffer_size"sv, 100'000'000},
                                      std::pair{"steps_per_print"sv, 10}};
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
    name = {type.text, origin_of(type), true};
  }

  void read_schedule_argument(ScheduleConfig& schedule, const std::string& name, const SourceNode& node) {
    const auto path = "scheduler.params." + name;
    if (is_auto_text(node)) return read_auto_argument(schedule, name, path, node);
    if (node.kind == Kind::number) {
      const auto value = loose_value(node);
      schedule.numbers[name] = value.get<double>();
      return show(path, value, origin_of(node));
    }
    if (node.kind != Kind::text && node.kind != Kind::boolean) {
      fail("{}: {} is {}; expected a number or text", node.where, path, describe(node));
    }
    schedule.words[name] = node.text;
    show(path, loose_value(node), origin_of(node));
  }

  void read_auto_argument(ScheduleConfig& schedule, const std::string& name, const std::string& path,
                          const SourceNode& node) {
    const auto max_steps = settings_.whole("max_steps");
    if (name == "warmup_min_lr") {
      schedule.numbers[name] = 0;
      show(path, 0, "Trainer's rule (0)");
    } else if (name == "warmup_max_lr") {
      schedule.numbers[name] = settings_.number("learning_rate");
      show(path, settings_.at("learning_rate").value, "Trainer's rule (learning_rate)");
    } else if (name == "total_num_steps") {  // absent: the run's, known once its rows are counted
      if (max_steps > 0) schedule.numbers[name] = static_cast<double>(max_steps);
      show(path, max_steps > 0 ? Json(max_steps) : Json(nullptr), "Trainer's rule (the steps of the run)");
    } else if (name == "warmup_num_steps") {
      const double ratio = schedule.warmup_ratio;
      const bool is_known = schedule.warmup_steps > 0 || ratio == 0 || max_steps > 0;
      schedule.has_warmup_of_run = !is_known;
      const auto steps = schedule.warmup_steps > 0
                             ? schedule.warmup_steps
                             : static_cast<std::int64_t>(std::ceil(ratio * static_cast<double>(max_steps)));
      if (is_known) schedule.numbers[name] = static_cast<double>(std::max<std::int64_t>(steps, 0));
      show(path, is_known ? Json(schedule.numbers[name] == 0 ? 0 : steps) : Json(nullptr),
           "Trainer's rule (warmup_steps, warmup_ratio)");
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
      mirror("warmup_steps", loose_value(*steps), "scheduler.params.warmup_num_steps", *steps);
    }
  }

  const DeepSpeedReader& reader_;
  RunSettings& settings_;
  DeepSpeedOutcome outcome_;
};

}  // namespace

DeepSpeedOutcome resolve_deepspeed(SourceNode root, RunSettings& settings) {
  const DeepSpeedReader reader(root);
  return Resolver(reader, settings).resolve();
}

void check_deepspeed_supported(const RunSettings& settings) {
  for (const auto& [name, setting] : settings.all()) {
    if (!name.starts_with("deepspeed.")) continue;
    const auto path = name.substr(std::string_view("deepspeed.").size());
    const auto* key = find_deepspeed_key(path);
    std::string_view only;
    if (key != nullptr) {
      const auto* run_key = key->run_key.empty() ? nullptr : find_run_key(key->run_key);
      only = run_key != nullptr ? run_key->only : key->only;
    }
    if (!is_among(setting.value, only)) {
      std::string choices(only);
      std::replace(choices.begin(), choices.end(), '|', ',');
      fail("{}: {} is {}, which this version does not have; it has {}", setting.origin, path, plain_text(setting.value),
           choices);
    }
  }
  for (const auto& key : deepspeed_keys()) {
    if (!key.is_free_form) continue;
    const auto prefix = fmt::format("deepspeed.{}", key.path);
    const auto first = settings.all().lower_bound(prefix);
    const bool is_given = first != settings.all().end() && first->first.starts_with(prefix) &&
                          (first->first.size() == prefix.size() || first->first[prefix.size()] == '.');
    if (!is_given) continue;
    const auto enabled = settings.all().find(prefix + ".enabled");
    if (enabled != settings.all().end() && enabled->second.value == false) continue;
    fail("{}: {} is a section of DeepSpeed's that this version does not have", first->second.origin, key.path);
  }
}

}  // namespace heddle
