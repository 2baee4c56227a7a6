#include "config/optimizer_names.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "config/value_rule.h"

namespace heddle {
namespace {

using Argument = OptimizerArgument;
using Kind = OptimizerArgument::Kind;
using namespace std::string_view_literals;

// transformers/training_args.py, OptimizerNames
constexpr std::array kAdamWNames = {"adamw_torch"sv, "adamw_torch_fused"sv};
constexpr std::array k8BitNames = {"adamw_bnb_8bit"sv};
constexpr std::array kLionNames = {"lion_32bit"sv};

// torch.optim.SGD, torch.optim.Muon and transformers.optimization.Adafactor
constexpr std::array kSgd = {Argument{"momentum"}, Argument{"dampening"}, Argument{"nesterov", Kind::flag}};
constexpr std::array kAdafactor = {
    Argument{"decay_rate", Kind::number, -0x1p10, 0x1p-1074}, Argument{"clip_threshold", Kind::number, 0x1p-126},
    Argument{"scale_parameter", Kind::flag, 0, 0, {}, "false"},
    Argument{"relative_step", Kind::flag, 0, 0, {}, "false"}, Argument{"warmup_init", Kind::flag, 0, 0, {}, "false"}};
constexpr std::array kAdjustments = {"original"sv, "match_rms_adamw"sv};
constexpr std::array kMuon = {Argument{"momentum", Kind::number, 0, 1}, Argument{"nesterov", Kind::flag},
                              Argument{"ns_steps", Kind::whole, 1, 100},
                              Argument{"adjust_lr_fn", Kind::word, 0, 0, kAdjustments}, Argument{"adam_lr"}};

constexpr std::array kTypes = {OptimizerType{"adamw", kAdamWNames},        OptimizerType{"adamw_8bit", k8BitNames},
                               OptimizerType{"lion", kLionNames},          OptimizerType{"sgd", {}, kSgd},
                               OptimizerType{"adafactor", {}, kAdafactor}, OptimizerType{"muon", {}, kMuon}};

std::string expectation(const Argument& argument) {
  switch (argument.kind) {
    case Kind::flag: return "true or false";
    case Kind::word: return join_choices(argument.words);
    default: break;
  }
  const auto* kind = argument.kind == Kind::whole ? "a whole number" : "a number";
  if (argument.name == "decay_rate"sv) return fmt::format("{} up to 0", kind);
  if (argument.name == "clip_threshold"sv) return fmt::format("{} above 0", kind);
  if (argument.below >= 0x1p63) return fmt::format("{} from {} on", kind, number_text(argument.least));
  return fmt::format("{} from {} to below {}", kind, number_text(argument.least), number_text(argument.below));
}

std::optional<double> read_argument(const Argument& argument, std::string_view text) {
  if (argument.kind == Kind::word) {
    const auto found = std::find(argument.words.begin(), argument.words.end(), text);
    if (found == argument.words.end()) return std::nullopt;
    return static_cast<double>(found - argument.words.begin());
  }
  if (argument.kind == Kind::flag) {
    if (text == "true" || text == "True" || text == "1") return 1;
    if (text == "false" || text == "False" || text == "0") return 0;
    return std::nullopt;
  }
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  if (argument.kind == Kind::whole && value != std::floor(value)) return std::nullopt;
  if (value < argument.least || value >= argument.below) return std::nullopt;
  return value;
}

const Argument& find_argument(const OptimizerType& type, std::string_view name, const std::string& where) {
  const auto found =
      std::find_if(type.arguments.begin(), type.arguments.end(), [&](const Argument& a) { return a.name == name; });
  if (found != type.arguments.end()) return *found;
  if (type.arguments.empty()) fail("{}: optim_args has {}; {} takes no arguments", where, name, type.name);
  std::vector<std::string_view> names;
  for (const auto& argument : type.arguments) names.push_back(argument.name);
  fail("{}: optim_args has {}, which {} does not take; expected {}", where, name, type.name, join_choices(names));
}

/// As torch.optim.SGD refuses it.
void check_nesterov(const OptimizerType& type, const std::map<std::string, double>& given, const std::string& where) {
  const auto value = [&](const char* name) { return given.contains(name) ? given.at(name) : 0.0; };
  if (type.name == "sgd"sv && value("nesterov") != 0 && (value("momentum") == 0 || value("dampening") != 0))
    fail("{}: optim_args has nesterov, which needs a momentum above 0 and no dampening", where);
}

}  // namespace

std::span<const OptimizerType> optimizer_types() { return kTypes; }

const OptimizerType* find_optimizer_type(std::string_view name) {
  const auto* found = std::find_if(kTypes.begin(), kTypes.end(), [&](const OptimizerType& type) {
    return type.name == name ||
           std::find(type.other_names.begin(), type.other_names.end(), name) != type.other_names.end();
  });
  return found == kTypes.end() ? nullptr : found;
}

std::map<std::string, double> read_optimizer_arguments(const OptimizerType& type, std::string_view text,
                                                       const std::string& where) {
  std::string plain;
  for (const char c : text) {
    if (c != ' ') plain += c;
  }
  std::map<std::string, double> values;
  for (std::size_t begin = 0; begin < plain.size();) {
    const auto end = std::min(plain.find(',', begin), plain.size());
    const auto entry = std::string_view(plain).substr(begin, end - begin);
    begin = end + 1;
    const auto equals = entry.find('=');
    if (equals == std::string_view::npos)
      fail("{}: optim_args has \"{}\"; expected NAME=VALUE, NAME=VALUE ...", where, entry);
    const auto name = entry.substr(0, equals), written = entry.substr(equals + 1);
    const Argument& argument = find_argument(type, name, where);
    const auto value = read_argument(argument, written);
    if (!value) fail("{}: optim_args has {}={}; expected {}", where, name, written, expectation(argument));
    if (!argument.only.empty() && *value != 0)
      fail("{}: optim_args has {}={}; this version has {} only", where, name, written, argument.only);
    if (!values.emplace(name, *value).second) fail("{}: optim_args has {} twice", where, name);
  }
  check_nesterov(type, values, where);
  return values;
}

}  // namespace heddle
