#include "config/deepspeed_curriculum.h"

#include <algorithm>

#include "base/error.h"

namespace heddle {
namespace {

constexpr std::string_view kSection = "curriculum_learning.";

class CurriculumReader {
 public:
  explicit CurriculumReader(const DeepSpeedReader& reader) : reader_(reader) {}

  CurriculumConfig read() {
    CurriculumConfig curriculum;
    if (!has("enabled") || value("enabled") != true) return curriculum;
    curriculum.is_enabled = true;
    value("curriculum_type");  // there is one that the table accepts, and no default
    curriculum.min_difficulty = whole("min_difficulty");
    curriculum.max_difficulty = whole("max_difficulty");
    if (curriculum.min_difficulty > curriculum.max_difficulty) {
      fail("{}: min_difficulty is {}, above max_difficulty, {}", where("min_difficulty"), curriculum.min_difficulty,
           curriculum.max_difficulty);
    }
    const auto schedule = value("schedule_type").get<std::string>();
    if (schedule == "fixed_discrete") {
      read_discrete(curriculum);
    } else {
      read_root(curriculum, schedule == "fixed_root");
    }
    return curriculum;
  }

 private:
  std::string path(std::string_view name) const { return std::string(kSection).append(name); }
  std::string where(std::string_view name) const {
    return fmt::format("{}: {}", reader_.find(path(name))->where, path(name));
  }
  bool has(std::string_view name) const { return reader_.is_explicit(path(name)); }
  Json value(std::string_view name) const {
    if (!has(name)) fail("{}: {} is missing", reader_.find(path("enabled"))->where, path(name));
    return reader_.value(path(name));
  }
  std::int64_t whole(std::string_view name) const { return value(name).get<std::int64_t>(); }

  void read_root(CurriculumConfig& curriculum, bool has_root) const {
    curriculum.total_steps = whole("schedule_config.total_curriculum_step");
    curriculum.difficulty_step = whole("schedule_config.difficulty_step");
    if (has_root) curriculum.root_degree = value("schedule_config.root_degree").get<double>();
  }

  void read_discrete(CurriculumConfig& curriculum) const {
    curriculum.difficulties = value("schedule_config.difficulty").get<std::vector<std::int64_t>>();
    curriculum.max_steps = value("schedule_config.max_step").get<std::vector<std::int64_t>>();
    const auto& lengths = curriculum.difficulties;
    if (lengths.size() != curriculum.max_steps.size() + 1) {
      fail("{} has {} values and max_step {}; expected one value more than max_step",
           where("schedule_config.difficulty"), lengths.size(), curriculum.max_steps.size());
    }
    const bool is_within = lengths.front() >= curriculum.min_difficulty && lengths.back() <= curriculum.max_difficulty;
    if (!is_within || !std::is_sorted(lengths.begin(), lengths.end())) {
      fail("{} is {}; expected values that grow from min_difficulty, {}, to max_difficulty, {}",
           where("schedule_config.difficulty"), Json(lengths).dump(), curriculum.min_difficulty,
           curriculum.max_difficulty);
    }
    if (!std::is_sorted(curriculum.max_steps.begin(), curriculum.max_steps.end())) {
      fail("{} is {}; expected steps that grow", where("schedule_config.max_step"), Json(curriculum.max_steps).dump());
    }
  }

  const DeepSpeedReader& reader_;
};

}  // namespace

CurriculumConfig read_curriculum(const DeepSpeedReader& reader) { return CurriculumReader(reader).read(); }

}  // namespace heddle
