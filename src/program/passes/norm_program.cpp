#include <utility>

#include "ops/block_tree.h"
#include "program/passes/update_program.h"

namespace heddle {

StepProgram make_norm_program(const Parameters& parameters, const Sharding& sharding, const Offload& offload) {
  UpdateProgram made("gradient norm", parameters, sharding, offload);
  const auto count = static_cast<std::int64_t>(made.trainable.size());
  const bool adds_up = sharding.accumulation > 1, is_whole = !sharding.shards_gradients();

  std::vector<std::pair<int, const Parameter*>> gradients;
  for (const auto* parameter : made.trainable) gradients.emplace_back(made.gradient(*parameter), parameter);
  if (sharding.ranks > 1 && is_whole && adds_up) {
    if (!sharding.is_ordered) made.reduce(gradients);
    if (sharding.stage == 0) made.start_gather(gradients);
    made.wait_for_gathers();
  }

  const std::int64_t pieces = sharding.shards_optimizer() ? sharding.ranks : 1, slots = count * kMostRuns;
  const int sums =
      made.persistent(labels::sums_of_squares, DType::f64, {pieces, count, kMostRuns}, BufferClass::workspace);
  const std::int64_t own = pieces > 1 ? sharding.rank * slots : 0;
  std::vector<double> elements;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto& [gradient, parameter] = gradients[static_cast<std::size_t>(i)];
    const std::int64_t size = parameter->shape.elements();
    elements.push_back(static_cast<double>(size));
    if (made.program.at(gradient).tier == Tier::nvme) continue;  // summed by swap_gradients()
    const int x = made.updated(gradient, *parameter, sharding.shards_gradients());
    const int y = made.view(sums, own + i * kMostRuns, kMostRuns);
    append_instruction(made.program, find_operation("sum_of_squares"), {x},
                       {{"elements", size}, {"begin", made.first_updated(*parameter)}}, {y}, 0, Phase::update);
  }
  if (pieces > 1) {
    const int piece = made.view(sums, own, slots);
    auto& gather = made.append("all_gather", Queue::communication);
    gather.inputs = {piece};
    gather.outputs = {sums};
    made.append("wait", Queue::compute).inputs = {sums};
  }
  const int norm = made.persistent(labels::gradient_norm, DType::f64, {1}, BufferClass::workspace);
  const int factor = made.persistent(labels::gradient_factor, DType::f32, {1}, BufferClass::workspace);
  append_instruction(made.program, find_operation("gradient_norm"), {sums}, {{"elements", elements}, {"ranks", pieces}},
                     {norm, factor}, 0, Phase::update);
  return std::move(made.program);
}

}  // namespace heddle
