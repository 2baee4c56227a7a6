#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "program/program.h"

/// What the passes that move data (shard, offload) share: stretches of computation, and instructions put between them.
namespace heddle {

/// Instructions [begin, end) of one unit in one direction, without movements of data; or movements.
struct Segment {
  int begin, end;
  int unit;
  bool is_backward;
  bool is_movement;
};
std::vector<Segment> segments_of(const StepProgram& program);

/// Instructions to be put into a program at positions counted before any is there.
class Insertions {
 public:
  explicit Insertions(StepProgram& program) : program_(program), before_(program.instructions.size() + 1) {}

  /// Before the instruction at `position`, after what was put there already. `segment` is what it belongs to. The
  /// reference holds until the next call.
  Instruction& insert(int position, std::string_view operation, const Segment& segment, Queue queue);
  void merge();

 private:
  StepProgram& program_;
  std::vector<std::vector<Instruction>> before_;
};

/// Makes the root `id` a view of a new flat root of so many elements, which takes over its label and place.
int flatten(StepProgram& program, int id, std::int64_t elements);

/// Elements rounded up to whole pages, in any type of two bytes and more, or in that of so many bytes: so transfers of
/// whole tensors can go past the page cache.
constexpr std::int64_t transfer_elements(std::int64_t elements, std::size_t bytes = 2) {
  const std::int64_t page = kPageBytes / (bytes == 1 ? 1 : 2);
  return (elements + page - 1) / page * page;
}

/// The persistent roots of a class.
std::vector<int> persistent_roots(const StepProgram& program, BufferClass buffer_class);

/// For each segment that reads one of `roots` (with the elements its copy needs): points its inputs to a copy of its
/// own in device memory (label + `suffix`, class communication), filled by a movement `operation` that starts with the
/// segment before that has such copies (`ahead`) or with this one, and is waited for where this one begins.
void copy_for_each_segment(StepProgram& program, Insertions& insertions, const std::vector<Segment>& segments,
                           const std::unordered_map<int, std::int64_t>& roots, std::string_view suffix,
                           std::string_view operation, Queue queue, bool ahead);

}  // namespace heddle
