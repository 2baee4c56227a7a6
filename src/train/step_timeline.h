#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "formats/json.h"
#include "train/compile.h"

namespace heddle {

/// An instruction that ran, and what was held meanwhile.
struct ExecutedInstruction {
  std::size_t program = 0, instruction = 0;
  std::chrono::steady_clock::time_point begin, end;
  std::array<std::array<std::uint64_t, kBufferClasses>, 3> held{};  ///< bytes by tier and class
};
using StepRecording = std::vector<ExecutedInstruction>;

/// Chrome's trace events, which Perfetto opens: a slice for each instruction within one for its unit and phase, and for
/// each tier a counter of the bytes held by class. Times are in microseconds from the first instruction.
Json step_trace(const CompiledRun& compiled, const StepRecording& recording, int rank);

/// Writes timeline.json, and timeline.svg of the device tier, into the folder.
void write_step_timeline(const std::filesystem::path& folder, const CompiledRun& compiled,
                         const StepRecording& recording, const std::string& title);

}  // namespace heddle
