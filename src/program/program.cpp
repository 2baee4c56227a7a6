#include "program/program.h"

#include <algorithm>

#include "base/error.h"

namespace heddle {

std::string_view class_name(BufferClass buffer_class) {
  constexpr std::array<std::string_view, kBufferClasses> kNames = {
      "parameters",  "master_weights", "gradients",     "optimizer_states",
      "activations", "workspace",      "communication", "data"};
  return kNames[static_cast<std::size_t>(buffer_class)];
}

std::string_view tier_name(Tier tier) {
  constexpr std::array<std::string_view, 3> kNames = {"device", "host", "nvme"};
  return kNames[static_cast<std::size_t>(tier)];
}

std::string_view phase_name(Phase phase) {
  constexpr std::array<std::string_view, 4> kNames = {"forward", "recompute", "backward", "update"};
  return kNames[static_cast<std::size_t>(phase)];
}

ValueType Buffer::type_of(std::int64_t tokens) const {
  ValueType actual = type;
  if (type.token_axis >= 0) {
    auto& rows = actual.shape[type.token_axis];
    rows = std::clamp<std::int64_t>(tokens - first_token, 0, rows);
  }
  return actual;
}

int StepProgram::add(Buffer buffer) {
  buffers.push_back(std::move(buffer));
  return static_cast<int>(buffers.size()) - 1;
}

int StepProgram::view(int buffer, const Shape& shape) {
  if (at(buffer).type.shape == shape) return buffer;
  const int parent = root(buffer);
  if (at(parent).type.shape == shape && at(buffer).view_offset == 0) return parent;
  Buffer made = at(buffer);
  HEDDLE_CHECK(shape.elements() == made.type.shape.elements());
  made.type.shape = shape;
  made.view_of = parent;
  return add(std::move(made));
}

int StepProgram::find_persistent(std::string_view label) const {
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].is_persistent && buffers[i].view_of < 0 && buffers[i].label == label) return static_cast<int>(i);
  }
  return -1;
}

std::string gradient_label(const std::string& parameter) { return parameter + " gradient"; }
std::string master_label(const std::string& parameter) { return parameter + " master"; }

}  // namespace heddle
