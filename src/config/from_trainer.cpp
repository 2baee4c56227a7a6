#include "config/from_trainer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "config/one_line_error.h"
#include "config/run_keys.h"
#include "config/run_resolver.h"
#include "config/trainer_arguments.h"
#include "config/yaml_writer.h"
#include "formats/files.h"

namespace heddle {
namespace {

using namespace std::string_view_literals;
using Kind = SourceNode::Kind;
using Use = TrainerArgument::Use;

constexpr std::size_t kMostFileBytes = std::size_t{16} << 20;

/// One optimizer to us: they differ in their kernels.
constexpr std::array kAdamWs = {
    "adamw"sv,           "adamw_torch"sv,          "adamw_torch_fused"sv, "adamw_hf"sv, "adamw_apex_fused"sv,
    "adamw_torch_xla"sv, "adamw_torch_npu_fused"sv};

SourceNode scalar_node(Kind kind, std::string text, std::string where) {
  SourceNode node;
  node.kind = kind;
  node.text = std::move(text);
  node.where = std::move(where);
  return node;
}

class TrainerConverter {
 public:
  TrainerConverter(SourceNode arguments, std::string name) : arguments_(std::move(arguments)), name_(std::move(name)) {
    run_.kind = Kind::map;
    run_.where = name_;
  }

  ConvertedRun convert(const RunFile::Overrides& overrides) {
    for (const auto& [key, text] : overrides) {
      if (key.substr(0, key.find('.')) == "deepspeed") override_deepspeed(key, text);
    }
    for (const auto& [name, node] : arguments_.entries) convert_argument(name, node);
    convert_deepspeed();
    convert_optimizer();
    convert_schedule();
    convert_steps();
    convert_rest();
    for (const auto& [key, text] : overrides) {
      if (!key.starts_with("deepspeed")) override_key(key, text);
    }
    resolve_run(run_, name_, {});  // refuses what the run file must not say
    return {write(), std::move(notes_)};
  }

 private:
  /// Null for an argument that is not there or null.
  const SourceNode* find(std::string_view name) const {
    const auto* node = arguments_.find(name);
    return node == nullptr || node->kind == Kind::null ? nullptr : node;
  }
  template <typename... Args>
  void note(const SourceNode& node, std::string_view name, fmt::format_string<Args...> why, Args&&... args) {
    notes_.push_back(fmt::format("{}: {} {} is left out: {}", node.where, name, plain_text(read_untyped(node)),
                                 fmt::format(why, std::forward<Args>(args)...)));
  }

  /// The run file's key takes the value, unless that is its default.
  void put(std::string_view run_key, SourceNode node, std::string_view name) {
    const auto& key = *find_run_key(run_key);
    const auto value = read_value(node, key.rule, std::string(name));
    if (key.rule.type != ValueRule::Type::map && value == Json::parse(key.fallback)) return;
    if (const auto* other = run_.find(run_key); other != nullptr) {
      fail("{}: {} is {}, but {} is {} ({}) already", node.where, name, describe(node), run_key, describe(*other),
           other->where);
    }
    run_.add(std::string(run_key), std::move(node));
  }
  void put_whole(std::string_view run_key, std::int64_t value, const SourceNode& from, std::string_view name) {
    put(run_key, scalar_node(Kind::number, std::to_string(value), from.where), name);
  }
  void put_text(std::string_view run_key, std::string value, const SourceNode& from, std::string_view name) {
    put(run_key, scalar_node(Kind::text, std::move(value), from.where), name);
  }

  void convert_argument(const std::string& name, const SourceNode& node) {
    if (name.starts_with('_')) return;  // Python's private
    const auto* row = find_trainer_argument(name);
    if (row == nullptr) {
      if (find_run_key(name) == nullptr) refuse_unknown(name, node);
      if (node.kind != Kind::null) put(name, node, name);
      return;
    }
    const bool is_harmless = row->harmless == "*" || is_harmless_value(*row, node);
    if (row->use == Use::run_key) {
      if (node.kind != Kind::null) put(row->run_key, node, name);
    } else if (row->use == Use::ignored && !is_harmless) {
      note(node, name, "{}", row->why);
    } else if (row->use == Use::refused && !is_harmless) {
      fail("{}: {} is {}, which is not here: {}", node.where, name, plain_text(read_untyped(node)), row->why);
    }
  }

  static bool is_harmless_value(const TrainerArgument& row, const SourceNode& node) {
    return row.harmless.empty() ? plain_text(read_untyped(node)).empty() : is_among(read_untyped(node), row.harmless);
  }

  [[noreturn]] static void refuse_unknown(const std::string& name, const SourceNode& node) {
    auto names = run_key_names("");
    for (const auto& row : trainer_arguments()) names.push_back(row.name);
    fail("{}: unknown argument {}{}", node.where, name, did_you_mean(name, names));
  }

  void override_key(const std::string& key, const std::string& text) {
    const auto top = key.substr(0, key.find('.'));
    if (find_run_key(top) == nullptr) fail("command line: unknown key {}{}", key, did_you_mean(top, run_key_names("")));
    set_path(run_, key, parse_command_line_value(text));
  }

  void override_deepspeed(const std::string& key, const std::string& text) {
    if (key != "deepspeed") fail("command line: {} is a key of the DeepSpeed JSON; change it there", key);
    if (const auto* own = find("deepspeed"); own != nullptr && (own->kind != Kind::text || own->text != text)) {
      fail("command line: deepspeed is {}, but {} has a deepspeed of its own ({})", text, name_, own->where);
    }
    set_path(arguments_, "deepspeed", scalar_node(Kind::text, text, "command line"));
  }

  void convert_deepspeed() {
    const auto* node = find("deepspeed");
    if (node == nullptr || (node->kind == Kind::text && node->text.empty())) return;
    run_.add("deepspeed", *node);
    SourceNode file;
    if (node->kind == Kind::text) file = parse_source(read_text_file(node->text, kMostFileBytes), node->text, true);
    const auto& object = node->kind == Kind::text ? file : *node;
    has_deepspeed_optimizer_ = object.find("optimizer") != nullptr;
    has_deepspeed_scheduler_ = object.find("scheduler") != nullptr;
  }

  void convert_optimizer() {
    if (const auto* node = find("max_grad_norm")) {
      put("max_grad_norm", *node, "max_grad_norm");
    } else if (const auto* null = arguments_.find("max_grad_norm")) {
      put_whole("max_grad_norm", 0, *null, "max_grad_norm");
    }
    const auto* adafactor = find("adafactor");
    const bool is_adafactor = adafactor != nullptr && adafactor->text != "false";
    const auto* node = is_adafactor ? adafactor : find("optim");
    const auto* arguments = find("optim_args");
    if (arguments != nullptr && arguments->text.empty()) arguments = nullptr;
    if (node == nullptr || std::find(kAdamWs.begin(), kAdamWs.end(), node->text) != kAdamWs.end()) {
      if (arguments != nullptr) note(*arguments, "optim_args", "AdamW reads none");
      return;
    }
    const auto* name = is_adafactor ? "adafactor" : "optim";
    if (has_deepspeed_optimizer_) return note(*node, name, "DeepSpeed's optimizer takes its place");
    if (is_adafactor) return put_text("optim", "adafactor", *node, name);
    put("optim", *node, name);
    if (arguments != nullptr) put("optim_args", *arguments, "optim_args");
  }

  void convert_schedule() {
    for (const auto* name : {"lr_scheduler_type", "lr_scheduler_kwargs"}) {
      const auto* node = find(name);
      if (node == nullptr || (node->kind == Kind::map && node->entries.empty())) continue;
      if (has_deepspeed_scheduler_) {
        if (node->text != "linear") note(*node, name, "DeepSpeed's scheduler takes its place");
      } else if (node->kind == Kind::text && name == "lr_scheduler_kwargs"sv) {  // JSON as text
        put(name, node_from_json(parse_json(node->text, node->where), node->where), name);
      } else {
        put(name, *node, name);
      }
    }
    const auto* steps = find("warmup_steps");
    const auto* ratio = find("warmup_ratio");
    const double number = steps == nullptr ? 0 : number_of(*steps, "warmup_steps");
    if (number >= 1) {
      put("warmup_steps", *steps, "warmup_steps");
      if (ratio != nullptr && number_of(*ratio, "warmup_ratio") != 0) {
        note(*ratio, "warmup_ratio", "warmup_steps {} holds", steps->text);
      }
    } else if (number > 0) {  // version 5: a part of all steps
      put("warmup_ratio", *steps, "warmup_steps");
    } else if (ratio != nullptr) {
      put("warmup_ratio", *ratio, "warmup_ratio");
    }
  }

  static double number_of(const SourceNode& node, const std::string& name) {
    return read_value(node, ValueRule::number(0), name).get<double>();
  }

  /// Steps as a number, or as a part of all steps.
  std::optional<std::int64_t> count_steps(const std::string& name) const {
    const auto* node = find(name);
    if (node == nullptr) return std::nullopt;
    const double number = number_of(*node, name);
    if (number >= 1 || number == 0) return read_value(*node, ValueRule::whole(0), name).get<std::int64_t>();
    const auto* all = find("max_steps");
    const double steps = all == nullptr ? 0 : read_value(*all, ValueRule::number(-1), "max_steps").get<double>();
    if (steps <= 0) fail("{}: {} is {}, a part of all steps, which needs max_steps", node->where, name, node->text);
    return static_cast<std::int64_t>(std::ceil(number * steps));
  }

  std::string strategy(std::string_view name) const {
    const auto* node = find(name);
    return node == nullptr ? "" : node->text;
  }

  void convert_steps() {
    const auto logging = strategy("logging_strategy");
    const auto logging_steps = count_steps("logging_steps");
    if (logging == "no" || logging == "epoch") {
      note(*find("logging_strategy"), "logging_strategy", "every step is printed; set logging_steps");
    } else if (logging_steps && *logging_steps > 0) {
      put_whole("logging_steps", *logging_steps, *find("logging_steps"), "logging_steps");
    }

    const auto* eval_name = find("eval_strategy") != nullptr ? "eval_strategy" : "evaluation_strategy";
    if (const auto eval = strategy(eval_name); eval == "steps") {
      const auto* from = find("eval_steps") != nullptr ? "eval_steps" : "logging_steps";
      if (const auto steps = count_steps(from)) put_whole("eval_steps", *steps, *find(from), from);
    } else if (eval == "epoch") {
      put_text("eval_strategy", eval, *find(eval_name), eval_name);
    }

    const auto save = strategy("save_strategy");
    if (save == "epoch" || save == "best") {
      put_text("save_strategy", save, *find("save_strategy"), "save_strategy");
    } else if (const auto steps = count_steps("save_steps"); steps && save != "no") {
      put_whole("save_steps", *steps, *find("save_steps"), "save_steps");
    }
    if (const auto* limit = find("save_total_limit")) put("save_total_limit", *limit, "save_total_limit");
  }

  void convert_rest() {
    for (const auto* name : {"gradient_checkpointing", "activation_checkpointing"}) {
      const auto* node = find(name);
      if (node != nullptr && run_.find("gradient_checkpointing") == nullptr) put("gradient_checkpointing", *node, name);
    }
    if (const auto* node = find("train_sampling_strategy"); node != nullptr && node->text != "random") {
      if (node->text != "sequential") {
        fail("{}: train_sampling_strategy is {}; expected random or sequential", node->where, describe(*node));
      }
      put("shuffle", scalar_node(Kind::boolean, "false", node->where), "train_sampling_strategy");
    }
    if (const auto* node = find("resume_from_checkpoint"); node != nullptr && node->text != "true") {
      const bool is_false = node->text == "false" || node->text == "False";
      put("resume_from_checkpoint", is_false ? scalar_node(Kind::boolean, "false", node->where) : *node,
          "resume_from_checkpoint");
    }
    if (const auto* node = find("loss_type"); node != nullptr && node->kind == Kind::list) {
      if (node->items.size() != 1) fail("{}: loss_type is {}; expected one loss", node->where, describe(*node));
      put("loss_type", node->items[0], "loss_type");
    } else if (node != nullptr) {
      put("loss_type", *node, "loss_type");
    }
    if (const auto* node = find("activation_offloading"); node != nullptr && node->text == "true")
      put_text("offload_activations", "cpu", *node, "activation_offloading");
    convert_reports();
    convert_fsdp();
  }

  /// The words of a list, or of a text with blanks between them.
  static std::vector<std::string> words_of(const SourceNode& node, const std::string& name) {
    const auto value = read_value(node, ValueRule::text_list(), name);
    if (value.is_array()) return value.get<std::vector<std::string>>();
    std::vector<std::string> words;
    const auto text = value.get<std::string>();
    for (std::size_t begin = 0; begin < text.size();) {
      const auto end = std::min(text.find(' ', begin), text.size());
      if (end > begin) words.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
    return words;
  }

  void convert_reports() {
    const auto* node = find("report_to");
    if (node == nullptr) return;
    for (const auto& word : words_of(*node, "report_to")) {
      if (word == "tensorboard") {
        put_text("report_to", word, *node, "report_to");
      } else if (word != "none") {
        note(*node, "report_to", "{}: metrics.jsonl has the figures; tensorboard is here", word);
      }
    }
  }

  void convert_fsdp() {
    const auto* node = find("fsdp");
    if (node == nullptr || (node->kind == Kind::boolean && node->text == "false")) return;
    const bool is_switch = node->kind == Kind::boolean;  // version 5: FSDP2 shards fully
    for (const auto& word : is_switch ? std::vector<std::string>{"full_shard"} : words_of(*node, "fsdp")) {
      if (word == "full_shard" || word == "hybrid_shard") {
        put_whole("zero_stage", 3, *node, "fsdp");
        if (word == "hybrid_shard") note(*node, "fsdp", "hybrid_shard: shards are over all ranks");
      } else if (word == "shard_grad_op" || word == "hybrid_shard_zero2") {
        put_whole("zero_stage", 2, *node, "fsdp");
      } else if (word == "offload") {
        put_text("offload_param", "cpu", *node, "fsdp");
      } else if (word != "auto_wrap" && word != "no_shard") {
        fail("{}: fsdp is {}; expected full_shard, shard_grad_op, no_shard, offload or auto_wrap", node->where, word);
      }
    }
  }

  std::string write() const {
    std::string text =
        fmt::format("# From {} by heddle config --from-trainer; keys at their default are left out.\n", name_);
    const bool has_model = run_.find("model_name_or_path") != nullptr || run_.find("config_name") != nullptr;
    if (!has_model) text += "# model_name_or_path:   the model's folder\n";
    if (run_.find("train_file") == nullptr) text += "# train_file:           its rows\n";
    for (const auto& subject : run_subjects()) {
      for (const auto& key : subject.keys) {
        const auto* node = run_.find(key.name);
        if (node == nullptr) continue;
        const bool is_open = key.rule.type == ValueRule::Type::map || node->kind == Kind::map;
        auto value = is_open ? read_untyped(*node) : read_value(*node, key.rule, std::string(key.name));
        if (key.rule.type == ValueRule::Type::data_files) value = short_form(value);
        text += yaml_entry(key.name, value);
      }
    }
    return text;
  }

  /// Data files as paths, where each has weight 1.
  static Json short_form(const Json& files) {
    auto paths = Json::array();
    for (const auto& file : files) {
      if (file.at("weight") != 1.0) return files;
      paths.push_back(file.at("path"));
    }
    return paths.size() == 1 ? paths[0] : paths;
  }

  SourceNode arguments_, run_;
  std::string name_;
  bool has_deepspeed_optimizer_ = false, has_deepspeed_scheduler_ = false;
  std::vector<std::string> notes_;
};

}  // namespace

ConvertedRun run_file_from_trainer_text(std::string_view text, const std::string& name,
                                        const RunFile::Overrides& overrides) {
  return with_one_line_errors(
      [&] { return TrainerConverter(parse_source(text, name, true), name).convert(overrides); });
}

ConvertedRun run_file_from_trainer(const std::filesystem::path& path, const RunFile::Overrides& overrides) {
  return run_file_from_trainer_text(read_text_file(path, kMostFileBytes), path.string(), overrides);
}

}  // namespace heddle
