#include "program/passes/segments.h"

#include <iterator>

namespace heddle {
namespace {

/// Points the segment's inputs to copies of the roots; {root, copy} in order.
std::map<int, int> redirect(StepProgram& program, const Segment& segment,
                            const std::unordered_map<int, std::int64_t>& roots, std::string_view suffix) {
  std::map<int, int> copies;
  for (int i = segment.begin; i < segment.end; ++i) {
    auto& instruction = program.instructions[static_cast<std::size_t>(i)];
    if (instruction.operation->name == "wait") continue;
    for (int& input : instruction.inputs) {
      if (input < 0) continue;
      const int root = program.root(input);
      const auto found = roots.find(root);
      if (found == roots.end()) continue;
      const auto [copy, is_new] = copies.try_emplace(root, -1);
      if (is_new) {
        copy->second = program.add({.label = program.at(root).label + std::string(suffix),
                                    .type = {program.at(root).type.dtype, {found->second}},
                                    .buffer_class = BufferClass::communication});
      }
      Buffer view = program.at(input);
      view.is_persistent = false;
      view.tier = Tier::device;
      view.view_of = copy->second;
      view.buffer_class = BufferClass::communication;
      input = program.add(std::move(view));
    }
  }
  return copies;
}

}  // namespace

std::vector<Segment> segments_of(const StepProgram& program) {
  std::vector<Segment> segments;
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    const auto& instruction = program.instructions[static_cast<std::size_t>(i)];
    const bool is_backward = instruction.phase != Phase::forward, moves = instruction.operation->moves_data;
    if (segments.empty() || segments.back().unit != instruction.unit || segments.back().is_backward != is_backward ||
        segments.back().is_movement != moves) {
      segments.push_back({i, i, instruction.unit, is_backward, moves});
    }
    segments.back().end = i + 1;
  }
  return segments;
}

Instruction& Insertions::insert(int position, std::string_view operation, const Segment& segment, Queue queue) {
  auto& list = before_[static_cast<std::size_t>(position)];
  list.push_back({.operation = &find_operation(operation),
                  .queue = queue,
                  .phase = segment.is_backward ? Phase::backward : Phase::forward,
                  .unit = segment.unit});
  return list.back();
}

void Insertions::merge() {
  std::vector<Instruction> merged;
  for (std::size_t i = 0; i <= program_.instructions.size(); ++i) {
    std::move(before_[i].begin(), before_[i].end(), std::back_inserter(merged));
    if (i < program_.instructions.size()) merged.push_back(std::move(program_.instructions[i]));
  }
  program_.instructions = std::move(merged);
}

int flatten(StepProgram& program, int id, std::int64_t elements) {
  Buffer root = program.at(id);
  root.type = {root.type.dtype, {elements}};
  const int made = program.add(std::move(root));
  for (int view = 0; view < made; ++view) {
    if (view == id || program.at(view).view_of == id) program.at(view).view_of = made;
  }
  return made;
}

std::vector<int> persistent_roots(const StepProgram& program, BufferClass buffer_class) {
  std::vector<int> roots;
  for (int id = 0; id < static_cast<int>(program.buffers.size()); ++id) {
    const Buffer& buffer = program.at(id);
    if (buffer.is_persistent && buffer.view_of < 0 && buffer.buffer_class == buffer_class) roots.push_back(id);
  }
  return roots;
}

void copy_for_each_segment(StepProgram& program, Insertions& insertions, const std::vector<Segment>& segments,
                           const std::unordered_map<int, std::int64_t>& roots, std::string_view suffix,
                           std::string_view operation, Queue queue, bool ahead) {
  int previous = 0;
  for (const auto& segment : segments) {
    const auto copies = redirect(program, segment, roots, suffix);
    if (copies.empty()) continue;
    auto& start = insertions.insert(ahead ? previous : segment.begin, operation, segment, queue);
    std::vector<int> filled;
    for (const auto& [root, copy] : copies) {
      start.inputs.push_back(root);
      start.outputs.push_back(copy);
      filled.push_back(copy);
    }
    insertions.insert(segment.begin, "wait", segment, Queue::compute).inputs = std::move(filled);
    previous = segment.begin;
  }
}

}  // namespace heddle
