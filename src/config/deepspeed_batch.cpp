#include "config/deepspeed_batch.h"

#include <optional>
#include <string>

#include "base/error.h"

namespace heddle {
namespace {

constexpr std::string_view kTotal = "train_batch_size";
constexpr std::string_view kMicro = "train_micro_batch_size_per_gpu";
constexpr std::string_view kAccumulation = "gradient_accumulation_steps";
constexpr const char* kRule = "DeepSpeed's rule (train_batch_size = micro batch x accumulation x ranks)";

/// One number of the triple.
struct Part {
  std::optional<std::int64_t> value;
  std::string origin = kRule;  // under the key of the JSON
  std::string where = {};      // in the JSON; empty: not there
  bool is_default = false;     // the run file's key stays at its default

  std::string text(std::string_view name) const {
    return fmt::format("{} {} ({})", name, *value, where.empty() ? origin : where);
  }
};

/// Takes the JSON's value, or the run file's where the JSON says "auto", or where it says nothing and the run file
/// does.
Part read_part(const DeepSpeedReader& reader, const RunSettings& settings, std::string_view path,
               std::string_view run_key) {
  const auto& setting = settings.at(run_key);
  if (reader.is_explicit(path)) {
    const auto& where = reader.find(path)->where;
    const auto value = reader.value(path).get<std::int64_t>();
    if (setting.is_set && setting.value != value) {
      fail("{}: {} is {}, but {} is {} ({})", where, path, value, run_key, plain_text(setting.value), setting.origin);
    }
    return {value, fmt::format("deepspeed ({})", where), where};
  }
  const bool is_auto = reader.is_auto(path);
  if (!is_auto && !setting.is_set) return {};
  const auto origin = is_auto ? fmt::format("Trainer's rule ({}: {})", run_key, setting.origin) : setting.origin;
  return {setting.value.get<std::int64_t>(), origin, "", !setting.is_set};
}

/// `total` / (`part` x `ranks`), or an error that names what does not divide.
std::int64_t divide(std::int64_t total, std::int64_t part, std::int64_t ranks, const std::string& where,
                    std::string_view part_name) {
  if (total % (part * ranks) == 0) return total / (part * ranks);
  const auto named = part_name.empty() ? "" : fmt::format(" {} {} x", part_name, part);
  fail("{}: {} is {}; expected a multiple of{} {} rank{}", where, kTotal, total, named, ranks, ranks == 1 ? "" : "s");
}

/// Fills in what is missing; DeepSpeed's rules.
void complete(std::optional<std::int64_t> total, Part& micro, Part& accumulation, std::int64_t ranks,
              const std::string& where, std::int64_t usual_micro) {
  if (!total) {
    if (!micro.value) micro = {usual_micro, "default", "", true};
    if (!accumulation.value) accumulation.value = 1;
  } else if (!micro.value && !accumulation.value) {
    accumulation.value = 1;
    micro.value = divide(*total, 1, ranks, where, "");
  } else if (!micro.value) {
    micro.value = divide(*total, *accumulation.value, ranks, where, kAccumulation);
  } else if (!accumulation.value) {
    accumulation.value = divide(*total, *micro.value, ranks, where, kMicro);
  } else if (*total != *micro.value * *accumulation.value * ranks) {
    fail("{}: {} is {}, but {} x {} x {} rank{} is {}", where, kTotal, *total, micro.text(kMicro),
         accumulation.text(kAccumulation), ranks, ranks == 1 ? "" : "s", *micro.value * *accumulation.value * ranks);
  }
}

/// Enters a number under its DeepSpeed key and under the run file's, after the range of the latter is checked.
void enter(RunSettings& settings, std::string_view path, std::string_view run_key, const Part& part,
           const std::string& where) {
  const auto& rule = find_run_key(run_key)->rule;
  if (static_cast<double>(*part.value) > rule.most) {
    fail("{}: {} is {}; expected {}", where, path, *part.value, describe(rule));
  }
  settings.add(fmt::format("deepspeed.{}", path), {*part.value, part.origin, true});
  auto& setting = settings.at(run_key);
  if (setting.is_set || part.is_default) return;
  setting = {*part.value, part.where.empty() ? part.origin : fmt::format("deepspeed ({}: {})", part.where, path), true};
}

}  // namespace

bool is_batch_key(std::string_view path) { return path == kTotal || path == kMicro || path == kAccumulation; }

void resolve_batch(const DeepSpeedReader& reader, RunSettings& settings) {
  const auto ranks = data_parallel_ranks(settings);
  auto micro = read_part(reader, settings, kMicro, "per_device_train_batch_size");
  auto accumulation = read_part(reader, settings, kAccumulation, "gradient_accumulation_steps");
  std::optional<std::int64_t> total;
  std::string where = "deepspeed", origin = kRule;
  if (reader.is_explicit(kTotal)) {
    total = reader.value(kTotal).get<std::int64_t>();
    where = reader.find(kTotal)->where;
    origin = fmt::format("deepspeed ({})", where);
  }
  complete(total, micro, accumulation, ranks, where, settings.whole("per_device_train_batch_size"));
  enter(settings, kMicro, "per_device_train_batch_size", micro, where);
  enter(settings, kAccumulation, "gradient_accumulation_steps", accumulation, where);
  settings.add(fmt::format("deepspeed.{}", kTotal), {*micro.value * *accumulation.value * ranks, origin, true});
}

}  // namespace heddle
