#include "config/run_resolver.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/text.h"
#include "config/deepspeed.h"
#include "config/optimizer_names.h"
#include "config/schedule_names.h"
#include "config/trainer_arguments.h"
#include "formats/files.h"

namespace heddle {
namespace {

using Kind = SourceNode::Kind;

constexpr std::size_t kMostDeepSpeedBytes = std::size_t{16} << 20;

/// What becomes of an argument of Hugging Face's Trainer that is no key of a run file; empty for other names.
std::string trainer_argument_hint(std::string_view name) {
  const auto* argument = find_trainer_argument(name);
  if (argument == nullptr) return {};
  const auto instead = argument->run_key.empty() ? argument->why : argument->run_key;
  return fmt::format(
      "; of Hugging Face's arguments, which `heddle config --from-trainer` turns into a run file; here: {}", instead);
}

[[noreturn]] void refuse_unknown_key(const std::string& where, std::string_view section, std::string_view name) {
  const auto names = run_key_names(section);
  if (section.empty()) {
    const auto hint = trainer_argument_hint(name);
    fail("{}: unknown key {}{}", where, name, hint.empty() ? did_you_mean(name, names) : hint);
  }
  const auto nearest = nearest_name(name, names);
  fail("{}: unknown key {}.{}{}", where, section, name,
       nearest.empty() ? fmt::format("; expected {}", fmt::join(names, ", "))
                       : fmt::format("; did you mean {}.{}?", section, nearest));
}

/// Keys whose value may be a map, so that a dotted override can reach into it.
bool is_section(std::string_view key) {
  return key == "lora" || key == "lr_scheduler_kwargs" || key == "deepspeed" || key == "columns";
}

class RunResolver {
 public:
  RunResolver(SourceNode root, std::string name, std::optional<int> launcher_ranks)
      : root_(std::move(root)), name_(std::move(name)), launcher_ranks_(launcher_ranks) {}

  ResolvedRun resolve(const RunFile::Overrides& overrides) {
    for (const auto& [key, text] : overrides) override_key(key, text);
    load_deepspeed();
    check_names();
    for (const auto& [key, node] : root_.entries) {
      if (key != "deepspeed") read_key(key, node);
    }
    unite_recompute();
    check_tiled_mlp();
    count_ranks();
    check_model();
    check_steps();
    check_evaluations();
    check_preferences();
    check_rewinding();
    const auto outcome = apply_deepspeed();
    data_parallel_ranks(run_.settings);
    check_weight_groups();
    check_precision();
    check_compute_dtype();
    check_offload();
    store(outcome);
    finish_schedule(outcome);
    read_optimizer();
    return std::move(run_);
  }

 private:
  /// Overrides of keys below `deepspeed` wait until its file is read.
  void override_key(const std::string& key, const std::string& text) {
    const auto dot = key.find('.');
    const auto top = key.substr(0, dot);
    if (find_run_key(top) == nullptr) refuse_unknown_key("command line", "", top);
    auto value = parse_command_line_value(text);
    if (dot == std::string::npos) return set_path(root_, key, std::move(value));
    if (!is_section(top)) fail("command line: unknown key {}; {} has no keys of its own", key, top);
    if (top != "deepspeed") return set_path(root_, key, std::move(value));
    value.is_untyped = false;
    deepspeed_overrides_.emplace_back(key.substr(dot + 1), std::move(value));
  }

  /// `deepspeed`: a path or the object itself.
  void load_deepspeed() {
    const auto* node = root_.find("deepspeed");
    if (node == nullptr && deepspeed_overrides_.empty()) return;
    deepspeed_.kind = Kind::map;
    deepspeed_.where = "command line";
    if (node != nullptr && node->kind == Kind::text) {
      run_.settings.at("deepspeed") = {node->text, node->where, true};
      try {
        deepspeed_ = parse_source(read_text_file(node->text, kMostDeepSpeedBytes), node->text, true);
      } catch (const Error& e) {
        fail("{}: deepspeed: {}", node->where, e.what());
      }
    } else if (node != nullptr && node->kind == Kind::map) {
      deepspeed_ = *node;
      run_.settings.at("deepspeed") = {read_untyped(*node), node->where, true};
    } else if (node != nullptr && node->kind != Kind::null) {
      fail("{}: deepspeed is {}; expected a path or an object", node->where, describe(*node));
    } else if (deepspeed_overrides_.empty()) {
      return;
    }
    has_deepspeed_ = true;
    for (auto& [path, value] : deepspeed_overrides_) set_path(deepspeed_, path, std::move(value));
  }

  /// Names before values: a misspelt key is the likelier slip.
  void check_names() const {
    for (const auto& [key, node] : root_.entries) {
      if (key.find('.') != std::string::npos || find_run_key(key) == nullptr) refuse_unknown_key(node.where, "", key);
      if (key != "lora") continue;
      const auto known = run_key_names("lora");
      for (const auto& [name, entry] : node.entries) {
        if (std::find(known.begin(), known.end(), name) == known.end()) refuse_unknown_key(entry.where, key, name);
      }
    }
  }

  void read_key(const std::string& key, const SourceNode& node) {
    const auto& row = *find_run_key(key);
    auto value = read_value(node, row.rule, key);
    if (key == "lora" && node.kind == Kind::map) {
      for (const auto& [name, entry] : node.entries) read_key("lora." + name, entry);
    }
    if (key == "lr_scheduler_kwargs" && node.kind == Kind::map) {
      for (const auto& [name, entry] : node.entries) read_schedule_argument(name, entry, value);
    }
    if (key == "torch_dtype" && value == "auto") value = nullptr;
    if (key == "optim") value = find_optimizer_type(value.get<std::string>())->name;  // of its several names
    run_.settings.at(key) = {std::move(value), node.where, node.kind != Kind::null};
  }

  void read_schedule_argument(const std::string& name, const SourceNode& node, Json& kwargs) {
    auto& schedule = run_.config.schedule;
    if (node.kind == Kind::number) {
      kwargs[name] = read_value(node, ValueRule::number(-ValueRule::kUnbounded), "lr_scheduler_kwargs." + name);
      schedule.numbers[name] = kwargs[name].get<double>();
    } else if (node.kind == Kind::text || node.kind == Kind::boolean) {
      kwargs[name] = node.kind == Kind::text ? Json(node.text) : Json(node.text == "true");
      schedule.words[name] = node.text;
    } else if (node.kind != Kind::null) {  // null: not given, as in Python
      fail("{}: lr_scheduler_kwargs.{} is {}; expected a number or text", node.where, name, describe(node));
    }
  }

  /// gradient_checkpointing: true is recompute: full.
  void unite_recompute() {
    auto& checkpointing = run_.settings.at("gradient_checkpointing");
    auto& recompute = run_.settings.at("recompute");
    if (checkpointing.is_set && recompute.is_set) {
      const bool agree = checkpointing.value == true ? recompute.value == "full" : recompute.value == "none";
      if (!agree) {
        fail("{}: gradient_checkpointing is {}, but recompute is {} ({}); true is full, false is none",
             checkpointing.origin, plain_text(checkpointing.value), plain_text(recompute.value), recompute.origin);
      }
    } else if (checkpointing.is_set) {
      recompute = {checkpointing.value == true ? "full" : "none", checkpointing.origin, true};
    } else if (recompute.is_set) {
      checkpointing = {recompute.value != "none", recompute.origin, true};
    }
    const auto& every = run_.settings.at("recompute_every");
    if (every.value != 1 && recompute.value != "selective" && recompute.value != "full") {
      fail("{}: recompute_every is {}, but recompute is {} ({}); expected selective or full", every.origin,
           plain_text(every.value), plain_text(recompute.value), recompute.origin);
    }
  }

  void check_tiled_mlp() const {
    const auto& shards = run_.settings.at("tiled_mlp_num_shards");
    if (shards.value == 0 || run_.settings.at("tiled_mlp").value == true) return;
    fail("{}: tiled_mlp_num_shards is {}, but tiled_mlp is false; expected tiled_mlp: true beside it", shards.origin,
         plain_text(shards.value));
  }

  /// Under mpirun or srun the number of ranks is theirs.
  void count_ranks() {
    auto& ranks = run_.settings.at("ranks");
    if (!launcher_ranks_) return;
    if (ranks.is_set && ranks.value != *launcher_ranks_) {
      fail("{}: ranks is {}, but the launcher started {}; leave ranks out under mpirun or srun", ranks.origin,
           plain_text(ranks.value), *launcher_ranks_);
    }
    if (!ranks.is_set) ranks = {*launcher_ranks_, "launcher", true};
  }

  void check_model() const {
    const auto& model = run_.settings.at("model_name_or_path");
    const auto& config = run_.settings.at("config_name");
    if (model.is_set && config.is_set) {
      fail(
          "{}: model_name_or_path and config_name ({}) are both set; the first trains further, the second from scratch",
          model.origin, config.origin);
    }
  }

  void check_steps() const {
    const auto& steps = run_.settings.at("max_steps");
    if (steps.value == 0) fail("{}: max_steps is 0; expected at least 1, or -1 for num_train_epochs", steps.origin);
    const auto& warmup = run_.settings.at("warmup_steps");
    const auto& ratio = run_.settings.at("warmup_ratio");
    if (warmup.value != 0 && ratio.value.get<double>() != 0) {
      fail("{}: warmup_steps is {}, but warmup_ratio is {} ({}); set one of them", warmup.origin,
           plain_text(warmup.value), plain_text(ratio.value), ratio.origin);
    }
  }

  void check_weight_groups() const {
    const auto& freeze = run_.settings.at("freeze");
    const auto& only = run_.settings.at("train_only");
    if (freeze.is_set && only.is_set)
      fail("{}: freeze and train_only ({}) are both set; each says what is trained", freeze.origin, only.origin);
    const auto& frozen = freeze.is_set ? freeze : only;
    const bool has_adapter = run_.settings.at("adapter_name_or_path").is_set || run_.settings.at("lora").is_set;
    if (frozen.is_set && has_adapter)
      fail("{}: {} is set beside an adapter; lora.target_modules and lora.modules_to_save say what is trained then",
           frozen.origin, freeze.is_set ? "freeze" : "train_only");
    const auto& groups = run_.settings.at("param_groups");
    for (const auto& group : groups.value.is_null() ? Json::array() : groups.value) {
      if (group.contains("learning_rate") && run_.settings.number("learning_rate") == 0)
        fail("{}: param_groups has a learning_rate, but learning_rate is 0; groups follow it in proportion",
             groups.origin);
    }
  }

  /// A strategy and the steps beside it must agree.
  void check_strategy(const char* strategy_key, const char* steps_key) const {
    const auto& strategy = run_.settings.at(strategy_key);
    const auto& steps = run_.settings.at(steps_key);
    if (strategy.value.is_null()) return;
    const bool has_steps = steps.value != 0;
    if ((strategy.value == "steps") == has_steps) return;
    fail("{}: {} is {}, {} {}; {} is {} ({})", strategy.origin, strategy_key, plain_text(strategy.value),
         has_steps ? "which does not go with" : "which needs", steps_key, steps_key, plain_text(steps.value),
         steps.origin);
  }

  /// What goes by evaluations needs some along the way, and load_best_model_at_end checkpoints of them, as with Hugging
  /// Face's Trainer.
  void check_evaluations() const {
    check_strategy("eval_strategy", "eval_steps");
    check_strategy("save_strategy", "save_steps");
    const auto& evals = run_.settings.at("eval_steps");
    const auto& saves = run_.settings.at("save_steps");
    const auto eval_steps = evals.value.get<std::int64_t>(), save_steps = saves.value.get<std::int64_t>();
    const bool by_epoch = run_.settings.at("eval_strategy").value == "epoch";
    const auto& save_strategy = run_.settings.at("save_strategy");
    const auto require_evaluations = [&](const char* key, const Setting& setting) {
      if (eval_steps > 0 || by_epoch) return;
      fail("{}: {} is {}, which needs eval_steps of at least 1 or eval_strategy: epoch; eval_steps is 0 ({})",
           setting.origin, key, plain_text(setting.value), evals.origin);
    };
    const auto& patience = run_.settings.at("early_stopping_patience");
    if (patience.value != 0) require_evaluations("early_stopping_patience", patience);
    if (save_strategy.value == "best") require_evaluations("save_strategy", save_strategy);
    const auto& best = run_.settings.at("load_best_model_at_end");
    if (best.value != true) return;
    require_evaluations("load_best_model_at_end", best);
    if (save_strategy.value == "best") return;
    if (by_epoch && save_strategy.value != "epoch") {
      fail(
          "{}: load_best_model_at_end needs checkpoints of its evaluations: with eval_strategy: epoch, save_strategy: "
          "epoch or best; it is {} ({})",
          best.origin, plain_text(save_strategy.value), save_strategy.origin);
    }
    if (!by_epoch && (save_steps == 0 || save_steps % eval_steps != 0)) {
      fail(
          "{}: load_best_model_at_end needs eval_steps, and save_steps that is a multiple of it; they are {} ({}) and "
          "{} ({})",
          best.origin, eval_steps, evals.origin, save_steps, saves.origin);
    }
  }

  /// Which loss is said by loss_type, and never guessed from the keys of one.
  void check_preferences() const {
    const auto& loss = run_.settings.at("loss_type");
    const auto type = loss.value.get<std::string>();
    if (type == "nll") {
      for (const auto* key :
           {"beta", "label_smoothing", "precompute_ref_log_probs", "max_prompt_length", "truncation_mode"}) {
        const auto& setting = run_.settings.at(key);
        if (!setting.is_set) continue;
        fail(
            "{}: {} is of the losses of preference pairs, and loss_type is nll ({}); expected loss_type: sigmoid (DPO)",
            setting.origin, key, loss.origin);
      }
      return;
    }
    const auto refuse = [&](const char* key, std::string_view why) {
      const auto& setting = run_.settings.at(key);
      fail("{}: {} is {}, and loss_type is {} ({}): {}", setting.origin, key, plain_text(setting.value), type,
           loss.origin, why);
    };
    constexpr std::string_view kAnswers = "the tokens of a pair's answers are what counts";
    if (run_.settings.at("assistant_only_loss").value == true) refuse("assistant_only_loss", kAnswers);
    if (run_.settings.at("completion_only_loss").value == false) refuse("completion_only_loss", kAnswers);
    if (run_.settings.at("train_on").value == "last") refuse("train_on", kAnswers);
    if (run_.settings.at("packing").value == true) refuse("packing", "a pair is never put into a row with others");
    for (const auto* key : {"label_smoothing_factor", "z_loss"}) {
      if (run_.settings.number(key) != 0) refuse(key, "it is a part of the loss of tokens");
    }
    const bool smooths = type == "sigmoid" || type == "robust";
    if (run_.settings.number("label_smoothing") != 0 && !smooths)
      refuse("label_smoothing", "sigmoid and robust have it");
  }

  void check_rewinding() const {
    const auto& rewinds = run_.settings.at("rewind_on_spike");
    const auto& strategy = run_.settings.at("save_strategy").value;
    if (rewinds.value.is_null() || run_.settings.number("save_steps") > 0 || run_.settings.number("save_minutes") > 0 ||
        strategy == "epoch" || strategy == "best")
      return;
    fail("{}: rewind_on_spike is {}, which needs checkpoints; save_steps and save_minutes are 0", rewinds.origin,
         plain_text(rewinds.value));
  }

  DeepSpeedOutcome apply_deepspeed() {
    if (!has_deepspeed_) return {};
    auto outcome = resolve_deepspeed(deepspeed_, run_.settings);
    const auto& file = run_.settings.at("deepspeed").value;
    for (const auto& [why, keys] : outcome.without_effect) {
      run_.notes.push_back(fmt::format("{}: without effect here: {} ({})",
                                       file.is_string() ? file.get<std::string>() : "deepspeed", fmt::join(keys, ", "),
                                       why));
    }
    return outcome;
  }

  void check_precision() const {
    const auto& bf16 = run_.settings.at("bf16");
    const auto& fp16 = run_.settings.at("fp16");
    if (bf16.value == true && fp16.value == true) {
      fail("{}: bf16 and fp16 ({}) are both true; choose one", bf16.origin, fp16.origin);
    }
  }

  /// The products of a quantized base are made in the run's own type.
  void check_compute_dtype() const {
    const auto& asked = run_.settings.at("bnb_4bit_compute_dtype");
    if (asked.value.is_null() || asked.value == "auto") return;
    const char* own = run_.settings.at("bf16").value == true   ? "bfloat16"
                      : run_.settings.at("fp16").value == true ? "float16"
                                                               : "float32";
    if (asked.value != own) {
      fail("{}: bnb_4bit_compute_dtype is {}; the run computes in {} (bf16, fp16)", asked.origin,
           plain_text(asked.value), own);
    }
  }

  void check_offload() const {
    const auto& gradients = run_.settings.at("offload_gradients");
    const auto& optimizer = run_.settings.at("offload_optimizer");
    if (gradients.value == "cpu" && optimizer.value == "none") {
      fail("{}: offload_gradients is cpu, and offload_optimizer is none ({}); expected cpu or nvme", gradients.origin,
           optimizer.origin);
    }
    if (run_.settings.at("nvme_path").is_set) return;
    for (const auto* key : {"offload_optimizer", "offload_gradients", "offload_param", "offload_activations"}) {
      const auto& setting = run_.settings.at(key);
      if (setting.value == "nvme") fail("{}: {} is nvme; expected a folder in nvme_path", setting.origin, key);
    }
  }

  void store(const DeepSpeedOutcome& outcome) {
    for (const auto& subject : run_subjects()) {
      for (const auto& key : subject.keys) {
        if (key.store != nullptr) key.store(run_.config, run_.settings.at(key.name).value);
      }
    }
    for (const auto& [key, setting] : run_.settings.all()) {
      if (key.starts_with("lora.") && setting.is_set) run_.config.lora_keys.push_back(key);
    }
    run_.config.has_lora = run_.config.has_lora || !run_.config.lora_keys.empty();
    run_.config.loss_scaling = outcome.loss_scaling;
    run_.config.zero = outcome.zero;
    run_.config.aio = outcome.aio;
    run_.config.curriculum = outcome.curriculum;
    if (outcome.curriculum.is_enabled && run_.config.trains_on_pairs()) {
      fail("{}: loss_type is {}, whose pairs are taken whole; curriculum_learning cuts rows",
           run_.settings.at("loss_type").origin, run_.config.preference.loss_type);
    }
  }

  void read_optimizer() {
    const auto& arguments = run_.settings.at("optim_args");
    if (!arguments.value.is_null()) {
      run_.config.optim_args = read_optimizer_arguments(*find_optimizer_type(run_.config.optim),
                                                        arguments.value.get<std::string>(), arguments.origin);
    }
    const auto& given = run_.config.optim_args;
    if (run_.config.optim == "sgd" && run_.config.weight_decay > 0 && given.contains("momentum") &&
        given.at("momentum") > 0) {
      run_.notes.push_back(fmt::format("{}: weight_decay is decoupled from sgd's momentum; torch.optim.SGD's is not",
                                       run_.settings.at("weight_decay").origin));
    }
  }

  void finish_schedule(const DeepSpeedOutcome& outcome) {
    auto& schedule = run_.config.schedule;
    if (outcome.schedule) {
      schedule = *outcome.schedule;
      return;
    }
    const auto& type = run_.settings.at("lr_scheduler_type");
    const auto& kwargs = run_.settings.at("lr_scheduler_kwargs");
    const auto& where = kwargs.is_set ? kwargs.origin : type.is_set ? type.origin : name_;
    if (find_schedule_type(schedule.type, true) != nullptr) {
      fail("{}: lr_scheduler_type is {}, a schedule of DeepSpeed's; give it as deepspeed.scheduler", type.origin,
           schedule.type);
    }
    check_schedule(schedule, run_.config.learning_rate, where, "lr_scheduler_type", "lr_scheduler_kwargs");
    const bool has_warmup = schedule.warmup_steps > 0 || schedule.warmup_ratio > 0;
    if (has_warmup && !find_schedule_type(schedule.type, false)->has_warmup) {
      run_.warnings.push_back(
          fmt::format("{}: lr_scheduler_type {} has no warm-up; constant_with_warmup has one", where, schedule.type));
    }
  }

  SourceNode root_;
  std::string name_;
  std::optional<int> launcher_ranks_;
  SourceNode deepspeed_;
  bool has_deepspeed_ = false;
  std::vector<std::pair<std::string, SourceNode>> deepspeed_overrides_;
  ResolvedRun run_;
};

}  // namespace

ResolvedRun resolve_run(SourceNode root, const std::string& name, const RunFile::Overrides& overrides,
                        std::optional<int> launcher_ranks) {
  return RunResolver(std::move(root), name, launcher_ranks).resolve(overrides);
}

}  // namespace heddle
