#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "program/passes/operands.h"
#include "program/passes/passes.h"

namespace heddle {
namespace {

using Uses = std::unordered_map<int, int>;  // by root: times that it is an operand

void count_uses(const StepProgram& program, const Instruction& instruction, Uses& uses) {
  for_each_operand(instruction, [&](int operand) { ++uses[program.root(operand)]; });
}

/// Memory of one tile, for values inside an MLP that are there at different times. All tiles use it in turn, so that a
/// program of many tiles has few buffers.
struct Room {
  int buffer;
  int busy_until;  // index of an instruction of the stretch
};

/// Gives the values that only a stretch of instructions knows their rooms.
class Rooms {
 public:
  Rooms(StepProgram& program, const std::vector<Instruction>& stretch, const Uses& uses_of_all, std::int64_t tokens)
      : program_(program), stretch_(stretch), tokens_(tokens) {
    Uses uses;
    for (const auto& instruction : stretch) count_uses(program, instruction, uses);
    for (int i = 0; i < static_cast<int>(stretch.size()); ++i) {
      for_each_operand(stretch[static_cast<std::size_t>(i)], [&](int operand) {
        const int root = program.root(operand);
        const Buffer& buffer = program.at(root);
        const bool is_inside =
            !buffer.is_persistent && buffer.type.token_axis == 0 && uses.at(root) == uses_of_all.at(root);
        if (is_inside) last_use_[root] = i;
      });
    }
    for (int i = 0; i < static_cast<int>(stretch.size()); ++i) {
      for (std::size_t o = 0; o < stretch[static_cast<std::size_t>(i)].outputs.size(); ++o) find_room(i, o);
    }
  }

  /// -1 for a value that lives outside too.
  int room_of(int root) const {
    const auto found = room_of_.find(root);
    return found == room_of_.end() ? -1 : rooms_[found->second].buffer;
  }

 private:
  void find_room(int index, std::size_t output) {
    const Instruction& instruction = stretch_[static_cast<std::size_t>(index)];
    if (instruction.outputs[output] < 0) return;
    const int root = program_.root(instruction.outputs[output]);
    const auto last = last_use_.find(root);
    if (last == last_use_.end() || room_of_.contains(root)) return;
    Buffer wanted = program_.at(root);
    wanted.type.shape[0] = tokens_;
    std::size_t room = in_place(instruction, index, output, wanted.bytes());
    if (room == rooms_.size()) room = free_room(index, wanted.bytes());
    if (room == rooms_.size()) {
      wanted.label += " of a tile";
      rooms_.push_back({program_.add(std::move(wanted)), 0});
    }
    rooms_[room].busy_until = last->second;
    room_of_.emplace(root, room);
  }

  /// The room of an input in whose place the output may be computed: it ends here, and no other operand lies there.
  std::size_t in_place(const Instruction& instruction, int index, std::size_t output, std::int64_t bytes) const {
    for (const auto& [o, i] : instruction.operation->in_place) {
      const auto input = static_cast<std::size_t>(i);
      if (static_cast<std::size_t>(o) != output || input >= instruction.inputs.size() || instruction.inputs[input] < 0)
        continue;
      const auto found = room_of_.find(program_.root(instruction.inputs[input]));
      if (found == room_of_.end()) continue;
      const Room& room = rooms_[found->second];
      if (room.busy_until != index || program_.at(room.buffer).bytes() != bytes) continue;
      int operands = 0;
      for_each_operand(instruction, [&](int operand) {
        const auto other = room_of_.find(program_.root(operand));
        operands += other != room_of_.end() && other->second == found->second ? 1 : 0;
      });
      if (operands == 1) return found->second;
    }
    return rooms_.size();
  }

  /// The smallest that is large enough.
  std::size_t free_room(int index, std::int64_t bytes) const {
    std::size_t best = rooms_.size();
    for (std::size_t r = 0; r < rooms_.size(); ++r) {
      const auto bytes_of = [&](std::size_t room) { return program_.at(rooms_[room].buffer).bytes(); };
      if (rooms_[r].busy_until >= index || bytes_of(r) < bytes) continue;
      if (best == rooms_.size() || bytes_of(r) < bytes_of(best)) best = r;
    }
    return best;
  }

  StepProgram& program_;
  const std::vector<Instruction>& stretch_;
  const std::int64_t tokens_;
  std::unordered_map<int, int> last_use_;         // by root of what is inside: index in the stretch
  std::unordered_map<int, std::size_t> room_of_;  // by root
  std::vector<Room> rooms_;
};

class Tiling {
 public:
  Tiling(StepProgram& program, std::int64_t tokens) : program_(program), tokens_(tokens) {
    for (const auto& instruction : program.instructions) count_uses(program, instruction, uses_);
  }

  void run() {
    std::vector<Instruction> before = std::move(program_.instructions);
    program_.instructions.clear();
    for (auto& instruction : before) {
      if (!stretch_.empty() && ends_stretch(instruction)) flush();
      if (instruction.in_mlp) {
        for_each_operand(instruction, [&](int operand) { touched_.insert(program_.root(operand)); });
        for (const int output : instruction.outputs) {
          if (output >= 0) written_.insert(program_.root(output));
        }
        stretch_.push_back(std::move(instruction));
      } else {
        program_.instructions.push_back(std::move(instruction));  // what stands between goes before
      }
    }
    flush();
  }

 private:
  bool ends_stretch(const Instruction& next) const {
    const Instruction& last = stretch_.back();
    if (next.unit != last.unit || (next.phase == Phase::forward) != (last.phase == Phase::forward)) return true;
    if (next.in_mlp) return false;
    const auto reads = [&](int input) { return input >= 0 && written_.contains(program_.root(input)); };
    const auto writes = [&](int output) { return output >= 0 && touched_.contains(program_.root(output)); };
    return std::ranges::any_of(next.inputs, reads) || std::ranges::any_of(next.outputs, writes);
  }

  void flush() {
    const std::vector<Instruction> stretch = std::exchange(stretch_, {});
    written_.clear();
    touched_.clear();
    std::int64_t capacity = 0;
    for (const auto& instruction : stretch) {
      for_each_operand(instruction, [&](int operand) {
        const ValueType& type = program_.at(operand).type;
        HEDDLE_CHECK(type.token_axis <= 0);
        if (type.token_axis == 0) capacity = std::max(capacity, type.shape[0]);
      });
    }
    if (capacity <= tokens_) {
      program_.instructions.insert(program_.instructions.end(), stretch.begin(), stretch.end());
      return;
    }
    const Rooms rooms(program_, stretch, uses_, tokens_);
    for (std::int64_t first = 0; first < capacity; first += tokens_) {
      std::unordered_map<int, int> tile;  // operand -> its rows of this tile
      for (Instruction instruction : stretch) {
        for (auto* operands : {&instruction.inputs, &instruction.outputs}) {
          for (int& operand : *operands) {
            if (operand < 0 || program_.at(operand).type.token_axis < 0) continue;
            const auto [found, is_new] = tile.try_emplace(operand, -1);
            if (is_new) found->second = rows_of(operand, rooms, first);
            operand = found->second;
          }
        }
        if (instruction.operation->name == "dropout") instruction.attributes.set("first_row", first);
        program_.instructions.push_back(std::move(instruction));
      }
    }
  }

  /// A view of the tile's rows: in the whole value, or in the room that it has for one tile.
  int rows_of(int operand, const Rooms& rooms, std::int64_t first) {
    Buffer view = program_.at(operand);
    const int root = program_.root(operand), room = rooms.room_of(root);
    const std::int64_t capacity = view.type.shape[0];
    if (room < 0) {
      view.view_offset += view.bytes() / capacity * first;
      view.view_of = root;
    } else {
      view.view_of = room;
    }
    view.type.shape[0] = std::min(tokens_, capacity - first);
    view.first_token = first;
    return program_.add(std::move(view));
  }

  StepProgram& program_;
  const std::int64_t tokens_;
  Uses uses_;                                  // in the whole program
  std::vector<Instruction> stretch_;           // of one MLP, its forward or its backward
  std::unordered_set<int> written_, touched_;  // roots, by the stretch
};

}  // namespace

void tile_mlp(StepProgram& program, std::int64_t tokens) {
  HEDDLE_CHECK(tokens > 0);
  Tiling(program, tokens).run();
}

}  // namespace heddle
