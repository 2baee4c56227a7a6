#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "program/passes/passes.h"
#include "train/compile.h"
#include "train/step_timeline.h"

namespace heddle {

/// Bytes alive on the device while each instruction of an optimizer step runs.
struct MemoryTimeline {
  struct Mark {
    std::size_t instruction;  ///< from which on
    std::string phase;        ///< "forward", "backward", "optimizer"
  };
  std::vector<std::array<std::uint64_t, kBufferClasses>> live;  ///< by instruction and class
  std::vector<Mark> marks;
};
/// As planned: of one micro-batch, the norm and the update, one after another.
MemoryTimeline memory_timeline(const CompiledRun& compiled);
/// As held, by what ran; marked where a phase comes first.
MemoryTimeline memory_timeline(const CompiledRun& compiled, const StepRecording& recording);

/// Total and each class over the instructions, as SVG.
std::string timeline_image(const MemoryTimeline& timeline, const std::string& title);

}  // namespace heddle
