#include "program/passes/passes.h"

namespace heddle {
namespace {

int add_persistent(StepProgram& program, std::string label, DType type, const Shape& shape, BufferClass buffer_class) {
  return program.add(
      {.label = std::move(label), .type = {type, shape}, .buffer_class = buffer_class, .is_persistent = true});
}

}  // namespace

StepProgram make_norm_program(const Parameters& parameters) {
  StepProgram program;
  program.name = "gradient norm";
  program.units = {"optimizer"};
  std::vector<const Parameter*> trainable;
  for (const auto& parameter : parameters.list) {
    if (parameter.is_trainable) trainable.push_back(&parameter);
  }
  const auto count = static_cast<std::int64_t>(trainable.size());
  const int sums =
      add_persistent(program, std::string(labels::sums_of_squares), DType::f64, {count}, BufferClass::workspace);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto& parameter = *trainable[static_cast<std::size_t>(i)];
    const int gradient =
        add_persistent(program, gradient_label(parameter.name), DType::f32, parameter.shape, BufferClass::gradients);
    Buffer slot = program.at(sums);
    slot.type.shape = {1};
    slot.view_of = sums;
    slot.view_offset = i * 8;
    const int view = program.add(std::move(slot));
    append_instruction(program, find_operation("sum_of_squares"), {gradient}, {}, {view}, 0, Phase::update);
  }
  const int norm = add_persistent(program, std::string(labels::gradient_norm), DType::f64, {1}, BufferClass::workspace);
  const int factor =
      add_persistent(program, std::string(labels::gradient_factor), DType::f32, {1}, BufferClass::workspace);
  append_instruction(program, find_operation("gradient_norm"), {sums}, {}, {norm, factor}, 0, Phase::update);
  return program;
}

StepProgram make_adamw_program(const Parameters& parameters, DType activation_type, const AdamWSettings& settings) {
  StepProgram program;
  program.name = "optimizer";
  program.units = {"optimizer"};
  const int factor =
      add_persistent(program, std::string(labels::gradient_factor), DType::f32, {1}, BufferClass::workspace);
  for (const auto& parameter : parameters.list) {
    if (!parameter.is_trainable) continue;
    const auto& [name, shape] = std::pair(parameter.name, parameter.shape);
    const int gradient = add_persistent(program, gradient_label(name), DType::f32, shape, BufferClass::gradients);
    const int weight = add_persistent(program, name, activation_type, shape, BufferClass::parameters);
    const int master = activation_type == DType::f32 ? -1
                                                     : add_persistent(program, master_label(name), DType::f32, shape,
                                                                      BufferClass::master_weights);
    const int exp_avg = add_persistent(program, exp_avg_label(name), DType::f32, shape, BufferClass::optimizer_states);
    const int exp_avg_sq =
        add_persistent(program, exp_avg_sq_label(name), DType::f32, shape, BufferClass::optimizer_states);
    append_instruction(program, find_operation("adamw"), {gradient, factor},
                       {{"beta1", settings.beta1},
                        {"beta2", settings.beta2},
                        {"epsilon", settings.epsilon},
                        {"weight_decay", shape.rank() >= 2 ? settings.weight_decay : 0.0}},
                       {weight, master, exp_avg, exp_avg_sq}, 0, Phase::update);
  }
  return program;
}

}  // namespace heddle
