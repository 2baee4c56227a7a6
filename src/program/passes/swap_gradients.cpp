#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "ops/block_tree.h"
#include "program/passes/passes.h"
#include "program/passes/segments.h"

namespace heddle {
namespace {

class SwapGradients {
 public:
  SwapGradients(StepProgram& program, const Parameters& parameters, const Sharding& sharding, const Offload& offload)
      : program_(program), sharding_(sharding), offload_(offload), insertions_(program) {
    for (const auto& parameter : parameters.list) {
      if (!parameter.is_trainable) continue;
      places_.emplace(gradient_label(parameter.name), Place{count_, parameter.shape.elements()});
      ++count_;
    }
  }

  void run() {
    const std::int64_t pieces = sharding_.shards_optimizer() ? sharding_.ranks : 1;
    sums_ = program_.add({.label = std::string(labels::sums_of_squares),
                          .type = {DType::f64, {pieces, count_, kMostRuns}},
                          .buffer_class = BufferClass::workspace,
                          .is_persistent = true});
    for (const int root : persistent_roots(program_, BufferClass::gradients)) {
      if (offload_.tier_of_gradient(program_.at(root).label) != Tier::nvme) continue;
      const Swapped made = swap(root);
      swapped_.emplace(made.near, made);
    }
    int before = -1;  // the instruction that writes the gradients before
    const int count = static_cast<int>(program_.instructions.size());
    for (int i = 0; i < count; ++i) {
      const auto written = gradients_of(i);
      if (written.empty()) continue;
      if (adds_up(i)) fetch(written, before < 0 ? i : before, i);
      store(written, i);
      before = i;
    }
    if (!stored_.empty()) wait(count, stored_, program_.instructions[at(before)]);
    insertions_.merge();
  }

 private:
  /// Of a parameter: which of the trainable ones, and its size.
  struct Place {
    std::int64_t index, elements;
  };
  struct Swapped {
    int near, far;  // flat, of whole pages
    Place place;
  };

  static std::size_t at(int index) { return static_cast<std::size_t>(index); }

  /// What was the gradient becomes memory that lives while it is made.
  Swapped swap(int root) {
    const Place place = places_.at(program_.at(root).label);
    Buffer far = program_.at(root);
    far.type.shape = {transfer_elements(far.type.shape.elements(), dtype_bytes(far.type.dtype))};
    far.tier = Tier::nvme;
    const int near = flatten(program_, root, far.type.shape.elements());
    for (auto& buffer : program_.buffers) {
      if (&buffer != &program_.at(near) && buffer.view_of != near) continue;
      buffer.is_persistent = false;
      buffer.buffer_class = BufferClass::workspace;
    }
    program_.at(near).label += " staged";
    return {near, program_.add(std::move(far)), place};
  }

  std::vector<Swapped> gradients_of(int instruction) const {
    std::vector<Swapped> found;
    for (const int output : program_.instructions[at(instruction)].outputs) {
      if (output < 0) continue;
      const auto swapped = swapped_.find(program_.root(output));
      if (swapped != swapped_.end()) found.push_back(swapped->second);
    }
    return found;
  }

  bool adds_up(int instruction) const {
    return program_.instructions[at(instruction)].attributes.integer("accumulate", -1) !=
           static_cast<std::int64_t>(Accumulate::overwrite);
  }

  Instruction& insert(int position, std::string_view operation, Queue queue, const Instruction& beside) {
    return insertions_.insert(position, operation, {position, position, beside.unit, true, false}, queue);
  }
  void wait(int position, std::vector<int> buffers, const Instruction& beside) {
    insert(position, "wait", Queue::compute, beside).inputs = std::move(buffers);
  }

  /// While the gradients before are added up.
  void fetch(const std::vector<Swapped>& gradients, int start, int needed) {
    const Instruction& writer = program_.instructions[at(needed)];
    auto& transfer = insert(start, "transfer", Queue::transfer, writer);
    std::vector<int> near;
    for (const Swapped& gradient : gradients) {
      transfer.inputs.push_back(gradient.far);
      near.push_back(gradient.near);
    }
    transfer.outputs = near;
    wait(needed, std::move(near), writer);
  }

  /// Its squares are summed while it is near; the store runs until the next gradients are there.
  void store(const std::vector<Swapped>& gradients, int instruction) {
    const Instruction& writer = program_.instructions[at(instruction)];
    const int done = writer.queue == Queue::compute ? instruction + 1 : wait_for(instruction) + 1;
    for (const Swapped& gradient : gradients) sum_squares(gradient, done, writer);
    if (!stored_.empty()) wait(done, std::exchange(stored_, {}), writer);
    auto& transfer = insert(done, "transfer", Queue::transfer, writer);
    for (const Swapped& gradient : gradients) {
      stored_.push_back(gradient.near);
      transfer.outputs.push_back(gradient.far);
    }
    transfer.inputs = stored_;
  }

  /// The instruction that waits for a collective.
  int wait_for(int collective) const {
    const auto& inputs = program_.instructions[at(collective)].inputs;
    for (int i = collective + 1; i < static_cast<int>(program_.instructions.size()); ++i) {
      const auto& instruction = program_.instructions[at(i)];
      if (instruction.operation->name == "wait" &&
          std::ranges::find(instruction.inputs, inputs[0]) != instruction.inputs.end())
        return i;
    }
    fail("nothing waits for the gradients of {}", program_.units[at(program_.instructions[at(collective)].unit)]);
  }

  void sum_squares(const Swapped& gradient, int position, const Instruction& writer) {
    const std::int64_t elements = gradient.place.elements;
    const Partition partition = sharding_.partition(elements);
    const bool is_piece = sharding_.shards_gradients();
    const std::int64_t begin = is_piece ? partition.begin(sharding_.rank) : 0;
    const std::int64_t end = is_piece ? partition.end(sharding_.rank) : elements;
    const std::int64_t first = is_piece ? sharding_.rank * count_ : 0;
    auto& sum = insert(position, "sum_of_squares", Queue::compute, writer);
    sum.attributes = {{"elements", elements}, {"begin", begin}};
    sum.inputs = {view(gradient.near, 0, end - begin)};
    sum.outputs = {view(sums_, (first + gradient.place.index) * kMostRuns, kMostRuns)};
  }

  int view(int root, std::int64_t begin, std::int64_t count) {
    Buffer made = program_.at(root);
    made.type.shape = {count};
    made.view_offset = begin * static_cast<std::int64_t>(dtype_bytes(made.type.dtype));
    made.view_of = root;
    return program_.add(std::move(made));
  }

  StepProgram& program_;
  const Sharding& sharding_;
  const Offload& offload_;
  Insertions insertions_;
  std::unordered_map<std::string, Place> places_;  // by the gradient's label
  std::int64_t count_ = 0;
  int sums_ = -1;
  std::unordered_map<int, Swapped> swapped_;  // by what is near
  std::vector<int> stored_;                   // on their way to the nvme tier
};

}  // namespace

std::vector<GradientGroup> gradient_groups(const StepProgram& program) {
  std::vector<GradientGroup> groups;
  struct Made {
    std::size_t group;
    int unit;
  };
  std::unordered_map<int, Made> made;  // by root
  for (const auto& instruction : program.instructions) {
    const std::size_t count = groups.size();
    for (const int output : instruction.outputs) {
      if (output < 0 || program.at(output).buffer_class != BufferClass::gradients) continue;
      const int root = program.root(output);
      const auto [found, is_first] = made.try_emplace(root, Made{count, instruction.unit});
      if (is_first) {
        if (groups.size() == count) groups.emplace_back();
        groups.back().labels.push_back(program.at(root).label);
      }
      groups[found->second.group].is_of_several_units |= found->second.unit != instruction.unit;
    }
  }
  return groups;
}

void swap_gradients(StepProgram& program, const Parameters& parameters, const Sharding& sharding,
                    const Offload& offload) {
  SwapGradients(program, parameters, sharding, offload).run();
}

}  // namespace heddle
