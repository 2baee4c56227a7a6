#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "program/passes/update_program.h"

namespace heddle {
namespace {

/// The optimizer step of one tensor after another.
class OptimizerProgram {
 public:
  OptimizerProgram(const Parameters& parameters, DType activation_type, const Sharding& sharding,
                   const Offload& offload, UpdatedWeights updated)
      : made_(updated == UpdatedWeights::streamed ? "optimizer, streamed" : "optimizer", parameters, sharding, offload),
        update_(made_),
        updated_(updated),
        activation_type_(activation_type),
        settings_(parameters.optimizer),
        offload_(offload),
        factor_(made_.persistent(labels::gradient_factor, DType::f32, {1}, BufferClass::workspace)) {}

  StepProgram make() {
    const Sharding& sharding = made_.sharding();
    std::vector<std::pair<int, const Parameter*>> updated_wholes;  // of the last unit
    for (const auto* parameter : made_.trainable) {
      if (updated_ != UpdatedWeights::all && is_streamed(*parameter) != (updated_ == UpdatedWeights::streamed))
        continue;
      if (!updated_wholes.empty() && updated_wholes.back().second->unit != parameter->unit) {
        update_.finish();
        made_.start_gather(std::exchange(updated_wholes, {}));
      }
      const bool shards_weight = sharding.shards_weight(parameter->shape.elements());
      const int weight =
          made_.move(made_.root(parameter->name, activation_type_, *parameter, BufferClass::parameters, shards_weight),
                     offload_.parameters);
      append(*parameter, made_.updated(weight, *parameter, shards_weight));
      if (sharding.shards_optimizer() && !shards_weight) updated_wholes.emplace_back(weight, parameter);
    }
    update_.finish();
    made_.start_gather(updated_wholes);
    made_.wait_for_gathers();
    return std::move(made_.program);
  }

 private:
  static bool takes_whole(OptimizerKind kind) {
    return kind == OptimizerKind::muon || kind == OptimizerKind::adafactor;
  }

  bool is_streamed(const Parameter& parameter) const {
    const std::string label = gradient_label(parameter.name);
    const auto far = {offload_.parameters, offload_.tier_of_states(label), offload_.tier_of_gradient(label)};
    return !takes_whole(kind_for(settings_, parameter)) && std::ranges::find(far, Tier::nvme) != far.end();
  }

  void append(const Parameter& parameter, int weight) {
    const OptimizerKind kind = kind_for(settings_, parameter);
    const bool is_whole = takes_whole(kind);
    if (is_whole) update_.finish();
    const int gradient = is_whole ? made_.gradient_in_memory(parameter) : made_.gradient(parameter);
    std::vector<Updated> updated = {{weight}, {master(parameter)}};
    std::vector<int> states;
    for (const auto& state : optimizer_states(settings_, parameter)) {
      states.push_back(made_.state(parameter, state));
      updated.push_back({states.back(), state.covered});
    }
    if (kind == OptimizerKind::muon) return append_muon(parameter, gradient, states, updated);
    if (kind == OptimizerKind::adafactor) return append_adafactor(parameter, gradient, states, updated);
    const bool is_muons_adamw = settings_.kind == OptimizerKind::muon;
    Attributes attributes = {{"weight_decay", decay_of(parameter)},
                             {"rate", parameter.learning_rate_scale * (is_muons_adamw ? settings_.adamw_rate : 1.0)}};
    if (kind == OptimizerKind::sgd) {
      if (states.empty()) updated.emplace_back();
      attributes.set("momentum", settings_.momentum);
      attributes.set("dampening", settings_.dampening);
      attributes.set("nesterov", std::int64_t{settings_.nesterov ? 1 : 0});
    } else {
      attributes.set("beta1", settings_.beta1);
      attributes.set("beta2", settings_.beta2);
    }
    if (kind == OptimizerKind::adamw || kind == OptimizerKind::adamw_8bit) attributes.set("epsilon", settings_.epsilon);
    constexpr std::array<std::string_view, 4> kOperations = {"adamw", "adamw_8bit", "lion", "sgd"};
    update_.append(kOperations.at(static_cast<std::size_t>(kind)), parameter, own_elements(gradient, parameter),
                   factor_, updated, attributes);
  }

  /// The momentum's direction takes the gradient's place, is made orthogonal as a whole, and each rank steps with its
  /// elements of it.
  void append_muon(const Parameter& parameter, int gradient, const std::vector<int>& states,
                   const std::vector<Updated>& updated) {
    const int own = own_elements(gradient, parameter);
    update_.append("muon_momentum", parameter, own, factor_, {{own}, {states[0]}},
                   {{"momentum", settings_.momentum}, {"nesterov", std::int64_t{settings_.nesterov ? 1 : 0}}});
    update_.finish();
    const int whole = made_.gathered_gradient(gradient, parameter);
    const std::int64_t rows = parameter.shape[0], columns = parameter.shape[1], least = std::min(rows, columns);
    const int workspace = make_workspace(parameter, DType::f32, rows * columns + 2 * least * least, whole);
    append_instruction(made_.program, find_operation("newton_schulz"), {whole},
                       {{"steps", settings_.newton_schulz_steps}}, {whole, workspace}, 0, Phase::update);
    const auto ratio = static_cast<double>(rows) / static_cast<double>(columns);
    const double rate = settings_.matches_adamw ? 0.2 * std::sqrt(static_cast<double>(std::max(rows, columns)))
                                                : std::sqrt(std::max(1.0, ratio));
    append_descent(parameter, whole, rate, updated);
  }

  /// The direction takes the whole gradient's place: the factors, and the root mean square by which it is clipped, are
  /// of the tensor as a whole.
  void append_adafactor(const Parameter& parameter, int gradient, const std::vector<int>& states,
                        const std::vector<Updated>& updated) {
    const int whole = made_.gathered_gradient(gradient, parameter);
    const Shape& shape = parameter.shape;
    const bool is_factored = shape.rank() >= 2;
    const int workspace =
        make_workspace(parameter, DType::f64, is_factored ? shape.rows() + shape.back() : shape.elements(), whole);
    std::vector<int> outputs = {whole, -1, -1, -1, workspace};
    if (is_factored) {
      outputs[1] = states[0];
      outputs[2] = states[1];
    } else {
      outputs[3] = states[0];
    }
    append_instruction(made_.program, find_operation("adafactor"), {whole, factor_},
                       {{"decay_rate", settings_.decay_rate}, {"clip_threshold", settings_.clip_threshold}}, outputs, 0,
                       Phase::update);
    append_descent(parameter, whole, 1.0, updated);
  }

  /// weight and master, the first two of `updated`, go along this rank's elements of a direction. `rate` is of the
  /// direction alone, the parameter's own of the decay too.
  void append_descent(const Parameter& parameter, int whole, double rate, const std::vector<Updated>& updated) {
    const Buffer& weight = made_.program.at(updated[0].id);
    const std::int64_t elements = weight.type.shape.elements();
    const int own = made_.view(whole, made_.first_updated(parameter), elements);
    update_.append("descend", parameter, own, -1, {updated[0], updated[1]},
                   {{"weight_decay", decay_of(parameter) * parameter.learning_rate_scale},
                    {"rate", rate * parameter.learning_rate_scale}});
    update_.finish();
  }

  int master(const Parameter& parameter) {
    if (activation_type_ == DType::f32) return -1;
    const bool is_sharded = made_.sharding().shards_optimizer();
    const int root =
        made_.root(master_label(parameter.name), DType::f32, parameter, BufferClass::master_weights, is_sharded);
    return made_.updated(made_.move(root, offload_.tier_of_states(gradient_label(parameter.name))), parameter,
                         is_sharded);
  }

  int own_elements(int gradient, const Parameter& parameter) {
    return made_.updated(gradient, parameter, made_.sharding().shards_gradients());
  }

  /// On the tier of what it serves.
  int make_workspace(const Parameter& parameter, DType type, std::int64_t elements, int beside) {
    return made_.program.add({.label = parameter.name + " update",
                              .type = {type, {elements}},
                              .buffer_class = BufferClass::workspace,
                              .tier = made_.program.at(beside).tier});
  }

  double decay_of(const Parameter& parameter) const {
    return parameter.shape.rank() >= 2 ? parameter.weight_decay.value_or(settings_.weight_decay) : 0.0;
  }

  UpdateProgram made_;
  UpdateOfPieces update_;
  const UpdatedWeights updated_;
  const DType activation_type_;
  const OptimizerSettings& settings_;
  const Offload& offload_;
  const int factor_;
};

}  // namespace

StepProgram make_optimizer_program(const Parameters& parameters, DType activation_type, const Sharding& sharding,
                                   const Offload& offload, UpdatedWeights updated) {
  return OptimizerProgram(parameters, activation_type, sharding, offload, updated).make();
}

}  // namespace heddle
