#include <algorithm>
#include <map>
#include <unordered_map>

#include "base/error.h"
#include "program/passes/passes.h"
#include "program/passes/segments.h"

namespace heddle {
namespace {

class Shard {
 public:
  Shard(StepProgram& program, const Sharding& sharding, const Offload& offload)
      : program_(program),
        sharding_(sharding),
        offload_(offload),
        segments_(segments_of(program)),
        insertions_(program) {}

  void run() {
    shard_weights();
    shard_gradients();
    insertions_.merge();
  }

 private:
  int piece_view(int root, std::int64_t piece) {
    Buffer view = program_.at(root);
    view.type.shape = {piece};
    view.view_of = root;
    view.view_offset = sharding_.rank * view.type.bytes();
    return program_.add(std::move(view));
  }

  /// Whole weights get room for the padding of the all-gather that follows their update; sharded ones are gathered for
  /// each segment that uses them, while the one before is computed.
  void shard_weights() {
    if (sharding_.ranks == 1 || sharding_.stage == 0) return;
    std::unordered_map<int, std::int64_t> sharded;  // root -> elements of the whole, padded
    for (const int id : persistent_roots(program_, BufferClass::parameters)) {
      const Partition partition = sharding_.partition(program_.at(id).type.shape.elements());
      if (sharding_.shards_weight(partition.elements)) {
        sharded.emplace(id, partition.padded());
      } else if (program_.at(id).needs_gradient) {
        flatten(program_, id, partition.padded());
      }
    }
    copy_for_each_segment(program_, insertions_, segments_, sharded, " gathered", "all_gather", Queue::communication,
                          sharding_.overlaps);
    for (const auto& [id, padded] : sharded) program_.at(id).type.shape = {padded / sharding_.ranks};
  }

  struct Gradient {
    int contribution;  // root of what the micro-batch writes
    int target;        // where the optimizer step's gradient gathers
    int base = -1;     // what the target held before the micro-batch, where the contribution lies upon it
  };

  void shard_gradients() {
    const bool adds_up = sharding_.accumulation > 1;
    const bool is_whole = !sharding_.shards_gradients();
    if (sharding_.ranks == 1) {
      accumulate_apart(adds_up);
      return;
    }
    std::map<int, std::vector<Gradient>> by_segment;
    for (const int id : persistent_roots(program_, BufferClass::gradients)) {
      const int segment = last_segment_writing(id);
      const Partition partition = sharding_.partition(program_.at(id).type.shape.elements());
      if (is_whole && adds_up && !sharding_.is_ordered) {
        flatten(program_, id, partition.padded());  // gathers on each rank, and is reduced once, before the norm
      } else if (is_whole) {
        by_segment[segment].push_back(make_in_place(id, partition, adds_up));
      } else {
        by_segment[segment].push_back(make_transient(id, partition));
      }
    }
    for (const auto& [segment, gradients] : by_segment) reduce(segment, gradients, is_whole && !adds_up);
  }

  /// The micro-batch writes into the gradient's own buffer, which the ranks hold whole; this rank's piece, which
  /// gathers over the micro-batches, makes room meanwhile.
  Gradient make_in_place(int id, const Partition& partition, bool adds_up) {
    const int root = flatten(program_, id, partition.padded());
    set_accumulation(root, Accumulate::overwrite);
    Gradient made{root, piece_view(root, partition.piece())};
    if (!adds_up) return made;
    Buffer base = program_.at(made.target);
    base.label += " before the micro-batch";
    base.is_persistent = false;
    base.buffer_class = BufferClass::communication;
    base.view_of = -1;
    base.view_offset = 0;
    made.base = program_.add(std::move(base));
    const int first = first_writer(root);
    const int unit = program_.instructions[static_cast<std::size_t>(first)].unit;
    auto& keep = insertions_.insert(first, "accumulate_gradient", {first, first, unit, true, false}, Queue::compute);
    keep.attributes.set("accumulate", static_cast<std::int64_t>(Accumulate::overwrite));
    keep.inputs = {made.target};
    keep.outputs = {made.base};
    return made;
  }

  /// The micro-batch writes into a buffer of its own; what was the gradient's buffer gathers this rank's piece of it.
  Gradient make_transient(int id, const Partition& partition) {
    Buffer target = program_.at(id);
    target.tier = offload_.memory_of_gradient(target.label);
    target.type.shape = {partition.piece()};
    const int root = flatten(program_, id, partition.padded());
    Buffer& contribution = program_.at(root);
    contribution.label += " of the micro-batch";
    contribution.is_persistent = false;
    contribution.buffer_class = BufferClass::communication;
    set_accumulation(root, Accumulate::overwrite);
    return {root, program_.add(std::move(target))};
  }

  void reduce(int segment, const std::vector<Gradient>& gradients, bool gathers_whole) {
    const Segment& written = segments_[static_cast<std::size_t>(segment)];
    const bool waits_at_once = !sharding_.overlaps || static_cast<std::size_t>(segment) + 1 == segments_.size();
    auto& start = insertions_.insert(written.end, "reduce_scatter", written, Queue::communication);
    const bool adds_up = sharding_.accumulation > 1;
    start.attributes = {
        {"accumulate", static_cast<std::int64_t>(adds_up ? Accumulate::add_after_first : Accumulate::overwrite)},
        {"ordered", std::int64_t{sharding_.is_ordered ? 1 : 0}}};
    std::vector<int> waited;
    for (const auto& gradient : gradients) {
      start.inputs.push_back(gradient.contribution);
      start.outputs.push_back(gradient.target);
      waited.push_back(gradient.contribution);
    }
    const auto pieces = start.outputs, whole = start.inputs;
    for (const auto& gradient : gradients) {
      if (gradient.base >= 0) start.inputs.push_back(gradient.base);
    }
    if (gathers_whole && sharding_.stage == 0) {
      auto& gather = insertions_.insert(written.end, "all_gather", written, Queue::communication);
      gather.inputs = pieces;
      gather.outputs = whole;
    }
    // While the next unit is computed.
    const int position = waits_at_once ? written.end : segments_[static_cast<std::size_t>(segment) + 1].end;
    insertions_.insert(position, "wait", written, Queue::compute).inputs = std::move(waited);
  }

  /// One rank: in ordered mode, and where a gradient gathers in another tier, each micro-batch's is made apart and
  /// added as a whole, as several ranks would add it.
  void accumulate_apart(bool adds_up) {
    for (const int id : persistent_roots(program_, BufferClass::gradients)) {
      const Tier tier = offload_.memory_of_gradient(program_.at(id).label);
      if (tier == Tier::device && !(adds_up && sharding_.is_ordered)) continue;
      int last = 0;
      for (int i = 0; i < static_cast<int>(program_.instructions.size()); ++i) {
        if (writes(program_.instructions[static_cast<std::size_t>(i)], id)) last = i;
      }
      Buffer target = program_.at(id);
      target.tier = tier;
      Buffer& contribution = program_.at(id);
      contribution.label += " of the micro-batch";
      contribution.is_persistent = false;
      contribution.buffer_class = BufferClass::workspace;
      for (auto& view : program_.buffers) {
        if (view.view_of == id) view.is_persistent = false;
      }
      set_accumulation(id, Accumulate::overwrite);
      const auto& writer = program_.instructions[static_cast<std::size_t>(last)];
      auto& add = insertions_.insert(last + 1, "accumulate_gradient", {last, last + 1, writer.unit, true, false},
                                     Queue::compute);
      add.attributes.set("accumulate",
                         static_cast<std::int64_t>(adds_up ? Accumulate::add_after_first : Accumulate::overwrite));
      add.inputs = {id};
      add.outputs = {program_.add(std::move(target))};
    }
  }

  bool writes(const Instruction& instruction, int root) const {
    return std::any_of(instruction.outputs.begin(), instruction.outputs.end(),
                       [&](int output) { return output >= 0 && program_.root(output) == root; });
  }

  int last_segment_writing(int root) const {
    for (std::size_t s = segments_.size(); s-- > 0;) {
      for (int i = segments_[s].begin; i < segments_[s].end; ++i) {
        if (writes(program_.instructions[static_cast<std::size_t>(i)], root)) return static_cast<int>(s);
      }
    }
    fail("nothing writes {}", program_.at(root).label);
  }

  int first_writer(int root) const {
    int first = 0;
    while (!writes(program_.instructions.at(static_cast<std::size_t>(first)), root)) ++first;
    return first;
  }

  /// Of the first writer, which the accumulate pass made add up over micro-batches.
  void set_accumulation(int root, Accumulate mode) {
    auto& writer = program_.instructions[static_cast<std::size_t>(first_writer(root))];
    writer.attributes.set("accumulate", static_cast<std::int64_t>(mode));
  }

  StepProgram& program_;
  const Sharding& sharding_;
  const Offload& offload_;
  std::vector<Segment> segments_;
  Insertions insertions_;
};

}  // namespace

Tier Offload::tier_of_states(const std::string& label) const {
  return resident_states.contains(label) ? Tier::device : optimizer;
}

Tier Offload::tier_of_gradient(const std::string& label) const {
  if (gradients == Tier::device || (gradients == Tier::nvme && !resident_gradients.contains(label))) return gradients;
  return tier_of_states(label) == Tier::device ? Tier::device : Tier::host;
}

Tier Offload::memory_of_gradient(const std::string& label) const {
  const Tier tier = tier_of_gradient(label);
  return tier == Tier::nvme ? Tier::host : tier;
}

void shard(StepProgram& program, const Sharding& sharding, const Offload& offload) {
  Shard(program, sharding, offload).run();
}

}  // namespace heddle
