// Schedules of learning rates. Hugging Face's: the factors of transformers.get_scheduler (transformers 5). DeepSpeed's:
// the formulas of its documentation (deepspeed.readthedocs.io/en/latest/schedulers.html), evaluated at the number of
// optimizer steps done. DeepSpeed's own engine first steps WarmupLR, WarmupDecayLR and WarmupCosineLR after the second
// step, so that its first two steps share a rate; Heddle does not follow it there.
#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "base/error.h"

namespace heddle {
namespace {

using std::numbers::pi;

/// What every formula reads: the arguments and where the run stands.
struct Point {
  const ScheduleConfig& schedule;
  double learning_rate;
  double step, warmup, total;

  double number(const char* name, double otherwise) const {
    const auto found = schedule.numbers.find(name);
    return found == schedule.numbers.end() ? otherwise : found->second;
  }
  bool has(const char* name) const { return schedule.numbers.contains(name); }
  std::string word(const char* name, const char* otherwise) const {
    const auto found = schedule.words.find(name);
    return found == schedule.words.end() ? otherwise : found->second;
  }
  /// Part of the steps between warm-up and end that is done; beyond 1 after the end.
  double progress() const { return (step - warmup) / std::max(1.0, total - warmup); }
};

double cosine_factor(double cycles, double progress) { return 0.5 * (1 + std::cos(pi * cycles * 2 * progress)); }

// ---- Hugging Face: the factor on learning_rate once the warm-up is over

double linear(const Point& p) { return std::max(0.0, (p.total - p.step) / std::max(1.0, p.total - p.warmup)); }

double cosine(const Point& p) { return std::max(0.0, cosine_factor(p.number("num_cycles", 0.5), p.progress())); }

double cosine_with_restarts(const Point& p) {
  const double progress = p.progress();
  if (progress >= 1) return 0;
  return std::max(0.0, 0.5 * (1 + std::cos(pi * std::fmod(p.number("num_cycles", 1) * progress, 1.0))));
}

double polynomial(const Point& p) {
  const double end = p.number("lr_end", 1e-7) / p.learning_rate;
  if (p.step >= p.total) return end;
  return (1 - end) * std::pow(1 - p.progress(), p.number("power", 1)) + end;
}

double inverse_sqrt(const Point& p) {
  const double timescale = p.number("timescale", p.warmup > 0 ? p.warmup : 10'000);
  return 1 / std::sqrt((p.step + timescale - p.warmup) / timescale);
}

/// The least factor of the schedules that end at min_lr, or at min_lr_rate of the learning rate.
double least_factor(const Point& p) {
  if (p.has("min_lr_rate")) return p.number("min_lr_rate", 0);
  return p.learning_rate == 0 ? 0 : p.number("min_lr", 0) / p.learning_rate;
}

double raised(double factor, double least) { return std::max(0.0, factor * (1 - least) + least); }

double cosine_with_min_lr(const Point& p) {
  return raised(cosine_factor(p.number("num_cycles", 0.5), p.progress()), least_factor(p));
}

/// Its warm-up starts above zero, and both parts run one step ahead of cosine_with_min_lr.
double cosine_warmup_with_min_lr(const Point& p) {
  if (p.step < p.warmup) {
    if (!p.has("warmup_lr_rate")) return (p.step + 1) / std::max(1.0, p.warmup);
    const double first = p.number("warmup_lr_rate", 0);
    return first + (1 - first) * p.step / std::max(1.0, p.warmup - 1);
  }
  const double progress = (p.step - p.warmup + 1) / std::max(1.0, p.total - p.warmup);
  return raised(cosine_factor(p.number("num_cycles", 0.5), progress), least_factor(p));
}

double warmup_stable_decay(const Point& p) {
  const double least = p.number("min_lr_ratio", 0), decay = p.number("num_decay_steps", 0);
  const double stable = p.number("num_stable_steps", p.total - p.warmup - decay);
  if (p.step < p.warmup) {
    const double done = p.step / std::max(1.0, p.warmup);
    const auto type = p.word("warmup_type", "linear");
    return raised(type == "linear"   ? done
                  : type == "cosine" ? 0.5 * (1 - std::cos(pi * done))
                                     : 1 - std::sqrt(1 - done),
                  least);
  }
  if (p.step < p.warmup + stable) return 1;
  if (p.step >= p.warmup + stable + decay) return least;
  const double done = (p.step - p.warmup - stable) / std::max(1.0, decay);
  const auto type = p.word("decay_type", "cosine");
  return raised(type == "linear"   ? 1 - done
                : type == "cosine" ? cosine_factor(p.number("num_cycles", 0.5), done)
                                   : 1 - std::sqrt(done),
                least);
}

double hugging_face_factor(const Point& p) {
  const auto& type = p.schedule.type;
  if (type == "constant") return 1;
  if (type == "cosine_warmup_with_min_lr") return cosine_warmup_with_min_lr(p);
  if (type == "warmup_stable_decay") return warmup_stable_decay(p);
  if (p.step < p.warmup) return p.step / std::max(1.0, p.warmup);
  if (type == "linear") return linear(p);
  if (type == "cosine") return cosine(p);
  if (type == "cosine_with_restarts") return cosine_with_restarts(p);
  if (type == "polynomial") return polynomial(p);
  if (type == "constant_with_warmup") return 1;
  if (type == "inverse_sqrt") return inverse_sqrt(p);
  if (type == "cosine_with_min_lr") return cosine_with_min_lr(p);
  fail("internal: schedule {} has no formula", type);
}

// ---- DeepSpeed: the learning rate itself

/// DeepSpeed warms up over at least two steps.
double deepspeed_warmup(const Point& p) {
  const double otherwise = p.schedule.has_warmup_of_run ? p.warmup : 1000;
  return std::max(2.0, p.number("warmup_num_steps", otherwise));
}

/// Part of the warm-up that is done.
double rise(const Point& p, double warmup) {
  if (p.step >= warmup) return 1;
  return p.word("warmup_type", "log") == "linear" ? p.step / warmup : std::log(p.step + 1) / std::log(warmup);
}

double warmup_lr(const Point& p, double part) {
  const double low = p.number("warmup_min_lr", 0), high = p.number("warmup_max_lr", 1e-3);
  return low + (high - low) * part;
}

double warmup_decay_lr(const Point& p) {
  const double warmup = deepspeed_warmup(p), total = p.number("total_num_steps", p.total);
  if (p.step < warmup) return warmup_lr(p, rise(p, warmup));
  return warmup_lr(p, std::max(0.0, (total - p.step) / std::max(1.0, total - warmup)));
}

double warmup_cosine_lr(const Point& p) {
  const double warmup = deepspeed_warmup(p), total = p.number("total_num_steps", p.total);
  if (p.step < warmup) {
    const double first = p.number("warmup_min_ratio", 0);
    return p.learning_rate * (first + (1 - first) * rise(p, warmup));
  }
  const double least = p.number("cos_min_ratio", 1e-4);
  const double progress = std::min(1.0, (p.step - warmup + 1) / std::max(1.0, total - warmup));
  return p.learning_rate * (least + (1 - least) * cosine_factor(0.5, progress));
}

double one_cycle(const Point& p) {
  const double low = p.number("cycle_min_lr", 0), high = p.number("cycle_max_lr", 0);
  const double first = p.number("cycle_first_step_size", 2000), second = p.number("cycle_second_step_size", first);
  if (p.step <= first) return low + (high - low) * p.step / first;
  if (p.step <= first + second) return low + (high - low) * (first + second - p.step) / second;
  const double every = p.number("decay_step_size", 0);
  if (every == 0) return low;
  return low / (1 + p.number("decay_lr_rate", 0) * (p.step - first - second) / every);
}

double lr_range_test(const Point& p) {
  const double steps = p.step / p.number("lr_range_test_step_size", 2000);
  const double interval = p.word("lr_range_test_staircase", "false") == "true" ? std::floor(steps) : steps;
  return p.number("lr_range_test_min_lr", 1e-3) * (1 + p.number("lr_range_test_step_rate", 1) * interval);
}

double deepspeed_rate(const Point& p) {
  const auto& type = p.schedule.type;
  if (type == "WarmupLR") return warmup_lr(p, rise(p, deepspeed_warmup(p)));
  if (type == "WarmupDecayLR") return warmup_decay_lr(p);
  if (type == "WarmupCosineLR") return warmup_cosine_lr(p);
  if (type == "OneCycle") return one_cycle(p);
  if (type == "LRRangeTest") return lr_range_test(p);
  fail("internal: schedule {} has no formula", type);
}

}  // namespace

std::int64_t warmup_steps(const ScheduleConfig& schedule, std::int64_t total_steps) {
  if (schedule.warmup_steps > 0) return schedule.warmup_steps;
  return static_cast<std::int64_t>(std::ceil(schedule.warmup_ratio * static_cast<double>(total_steps)));
}

double learning_rate_at(const ScheduleConfig& schedule, double learning_rate, std::int64_t step,
                        std::int64_t total_steps) {
  const Point point{schedule, learning_rate, static_cast<double>(step),
                    static_cast<double>(warmup_steps(schedule, total_steps)), static_cast<double>(total_steps)};
  return schedule.deepspeed ? deepspeed_rate(point) : learning_rate * hugging_face_factor(point);
}

}  // namespace heddle
