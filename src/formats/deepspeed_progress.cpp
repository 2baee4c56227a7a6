#include "formats/deepspeed_progress.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "base/error.h"
#include "formats/deepspeed_reader.h"

namespace heddle {
namespace {

using Kind = Pickle::Kind;
using Object = Pickle::Object;

constexpr double kMostSteps = 0x1p53;  // a double counts no further

double number_of(const DeepSpeedReader& reader, const Object& object, const std::string& where) {
  if (object.kind == Kind::integer) return static_cast<double>(object.number);
  std::uint64_t bits = 0;  // the most significant byte first
  for (const char byte : reader.expect(object, Kind::real, where).text)
    bits = bits << 8 | static_cast<std::uint8_t>(byte);
  return std::bit_cast<double>(bits);
}

/// Calls use(step) for each parameter group's count, wherever this version of DeepSpeed, and this optimizer, keep it.
template <typename Use>
void for_each_step(const DeepSpeedReader& reader, const Object& state, Use use) {
  const Object* base = reader.optional(state, "base_optimizer_state");
  if (base == nullptr) base = reader.optional(state, "optimizer_state_dict");
  const Object* of_groups = base == nullptr ? nullptr : reader.optional(*base, "state");
  bool is_found = false;
  const auto use_step_of = [&](const Object& group) {
    if (const Object* step = reader.optional(group, "step")) {
      use(*step);
      is_found = true;
    }
  };
  if (of_groups != nullptr && of_groups->kind == Kind::dict) {
    for (std::size_t i = 1; i < of_groups->items.size(); i += 2) use_step_of(reader.at(of_groups->items[i]));
  }
  if (is_found) return;
  for (const Object* owner : {base, &state}) {
    const Object* groups = owner == nullptr ? nullptr : reader.optional(*owner, "param_groups");
    if (groups == nullptr || groups->kind != Kind::list) continue;
    for (const int group : groups->items) use_step_of(reader.at(group));
  }
}

std::optional<DeepSpeedLossScale> loss_scale_of(const DeepSpeedReader& reader, const Object& state) {
  const Object* scaler = reader.optional(state, "loss_scaler");
  if (scaler == nullptr || scaler->kind != Kind::record || scaler->items.size() < 3) return std::nullopt;
  if (!reader.at(scaler->items[0]).text.ends_with(" DynamicLossScaler")) return std::nullopt;
  const Object& members = reader.at(scaler->items[2]);
  const std::int64_t last =
      reader.expect(reader.require(members, "last_overflow_iter"), Kind::integer, "last_overflow_iter").number;
  DeepSpeedLossScale scale;
  scale.scale = number_of(reader, reader.require(members, "cur_scale"), "cur_scale");
  if (!(scale.scale > 0 && std::isfinite(scale.scale)))
    fail("{}: cur_scale is {}; expected a number above 0", reader.path(), scale.scale);
  // -1: there was no overflow yet.
  const std::int64_t iterations = reader.integer(reader.require(members, "cur_iter"), "cur_iter");
  scale.iterations_since_overflow = std::max<std::int64_t>(iterations - 1 - std::max<std::int64_t>(last, -1), 0);
  scale.hysteresis_left = reader.integer(reader.require(members, "cur_hysteresis"), "cur_hysteresis");
  return scale;
}

}  // namespace

std::int64_t read_deepspeed_step(const TorchPickle& file, const Object& object) {
  const DeepSpeedReader reader(file);
  if (object.kind == Kind::integer) return reader.integer(object, "step");
  const TorchTensor tensor = file.tensor(object, "step");
  if (tensor.elements() != 1) fail("{}: step has {} elements; expected one", file.path(), tensor.elements());
  file.verify({tensor});
  std::array<std::byte, sizeof(std::int64_t)> stored{};
  file.read_contiguous(tensor, 0, std::span(stored).first(dtype_bytes(tensor.dtype)));
  if (tensor.dtype == DType::i64) return std::bit_cast<std::int64_t>(stored);
  if (!is_floating(tensor.dtype))
    fail("{}: step is of {}; expected a floating-point number or int64", file.path(), torch_name(tensor.dtype));
  double step = 0;
  convert(stored.data(), tensor.dtype, &step, DType::f64, 1);
  if (!(step >= 0 && step < kMostSteps && step == std::floor(step)))
    fail("{}: step is {}; expected a whole number", file.path(), step);
  return static_cast<std::int64_t>(step);
}

DeepSpeedProgress read_deepspeed_counters(const TorchPickle& model) {
  const DeepSpeedReader reader(model);
  const Object& root = model.pickle().root();
  DeepSpeedProgress progress;
  progress.steps = reader.integer(reader.require(root, "global_steps"), "global_steps");
  if (const Object* skipped = reader.optional(root, "skipped_steps"))
    progress.skipped = reader.integer(*skipped, "skipped_steps");
  if (progress.skipped > progress.steps)
    fail("{}: skipped_steps is {}; global_steps is {}", model.path(), progress.skipped, progress.steps);
  progress.samples = reader.integer(reader.require(root, "global_samples"), "global_samples");
  return progress;
}

void add_optimizer_progress(const TorchPickle& file, const Object& state, DeepSpeedProgress& progress) {
  const DeepSpeedReader reader(file);
  for_each_step(reader, state, [&](const Object& object) {
    const std::int64_t updates = read_deepspeed_step(file, object);
    if (progress.updates && *progress.updates != updates) {
      fail("{}: its optimizer has made {} steps; that of another parameter group or rank {}", file.path(), updates,
           *progress.updates);
    }
    progress.updates = updates;
  });
  progress.loss_scale = loss_scale_of(reader, state);
}

}  // namespace heddle
