#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>

#include "program/passes/passes.h"
#include "program/passes/segments.h"

namespace heddle {
namespace {

/// Smaller activations (statistics of norms, for instance) are not worth a transfer.
constexpr std::int64_t kSmallestMoved = 4096;  // bytes

class OffloadPass {
 public:
  OffloadPass(StepProgram& program, const Offload& offload) : program_(program), offload_(offload) {}

  void run() {
    if (offload_.activations != Tier::device) {
      prepare();
      move_activations();
      insertions_->merge();
    }
    if (offload_.parameters != Tier::device) {
      prepare();
      fetch_parameters();
      insertions_->merge();
    }
  }

 private:
  void prepare() {
    segments_ = segments_of(program_);
    insertions_.emplace(program_);
  }

  void fetch_parameters() {
    std::unordered_map<int, std::int64_t> moved;
    for (const int id : persistent_roots(program_, BufferClass::parameters)) {
      const std::int64_t elements = transfer_elements(program_.at(id).type.shape.elements());
      moved.emplace(flatten(program_, id, elements), elements);
    }
    copy_for_each_segment(program_, *insertions_, segments_, moved, " fetched", "transfer", Queue::transfer, true);
    for (auto& buffer : program_.buffers) {
      if (buffer.buffer_class == BufferClass::parameters) buffer.tier = offload_.parameters;
    }
  }

  /// Where a buffer is used: its last segment of the forward, its first of the backward.
  struct Use {
    int forward = -1, backward = -1;
  };

  void move_activations() {
    std::map<int, Use> uses;  // by root
    for (int s = 0; s < static_cast<int>(segments_.size()); ++s) {
      for (int i = segments_[at(s)].begin; i < segments_[at(s)].end; ++i) {
        const auto& instruction = program_.instructions[at(i)];
        for (const auto* operands : {&instruction.inputs, &instruction.outputs}) {
          for (const int operand : *operands) {
            if (operand < 0) continue;
            Use& use = uses[program_.root(operand)];
            if (!segments_[at(s)].is_backward) {
              use.forward = s;
            } else if (use.backward < 0) {
              use.backward = s;
            }
          }
        }
      }
    }
    std::map<int, std::vector<int>> leaving, returning;  // by segment
    for (const auto& [root, use] : uses) {
      const Buffer& buffer = program_.at(root);
      const bool is_kept =
          buffer.is_persistent || buffer.buffer_class != BufferClass::activations || buffer.bytes() < kSmallestMoved;
      // There is a gain where a whole segment runs between the end of the way out and the beginning of the way back.
      if (is_kept || use.forward < 0 || use.backward < use.forward + 4 || stays(use)) continue;
      leaving[use.forward].push_back(root);
      returning[use.backward].push_back(root);
    }
    std::unordered_map<int, int> away;  // root -> its place in the other tier
    for (const auto& [segment, roots] : leaving) leave(segment, roots, away);
    for (const auto& [segment, roots] : returning) come_back(segment, roots, away);
  }

  /// What a unit uses last in the forward is its own to move or to keep.
  bool stays(const Use& use) const {
    return !offload_.resident_units.empty() && offload_.resident_units[at(segments_[at(use.forward)].unit)];
  }

  void leave(int segment, const std::vector<int>& roots, std::unordered_map<int, int>& away) {
    const Segment& made = segments_[at(segment)];
    auto& start = insertions_->insert(made.end, "transfer", made, Queue::transfer);
    for (const int root : roots) {
      Buffer place = program_.at(root);
      place.label += " offloaded";
      place.tier = offload_.activations;
      place.type.token_axis = -1;  // it moves as a whole
      away[root] = program_.add(std::move(place));
      start.inputs.push_back(root);
      start.outputs.push_back(away[root]);
    }
    insertions_->insert(segments_[at(segment) + 1].end, "wait", made, Queue::compute).inputs = roots;
  }

  void come_back(int segment, const std::vector<int>& roots, const std::unordered_map<int, int>& away) {
    const Segment& used = segments_[at(segment)];
    std::vector<int> places, copies;
    for (const int root : roots) {
      Buffer copy = program_.at(root);
      copy.label += " fetched";
      const int id = program_.add(std::move(copy));
      places.push_back(away.at(root));
      copies.push_back(id);
      for (auto i = at(used.begin); i < program_.instructions.size(); ++i) redirect(program_.instructions[i], root, id);
    }
    auto& start = insertions_->insert(segments_[at(segment) - 1].begin, "transfer", used, Queue::transfer);
    start.inputs = std::move(places);
    start.outputs = copies;
    insertions_->insert(used.begin, "wait", used, Queue::compute).inputs = std::move(copies);
  }

  void redirect(Instruction& instruction, int from, int to) {
    for (auto* operands : {&instruction.inputs, &instruction.outputs}) {
      for (int& operand : *operands) {
        if (operand < 0 || program_.root(operand) != from) continue;
        Buffer view = program_.at(operand);
        view.view_of = to;
        operand = operand == from ? to : program_.add(std::move(view));
      }
    }
  }

  static std::size_t at(int index) { return static_cast<std::size_t>(index); }

  StepProgram& program_;
  const Offload& offload_;
  std::vector<Segment> segments_;
  std::optional<Insertions> insertions_;
};

}  // namespace

void offload(StepProgram& program, const Offload& offload) { OffloadPass(program, offload).run(); }

}  // namespace heddle
