#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/run_config.h"
#include "formats/json.h"
#include "planner/ceilings.h"
#include "program/program.h"

namespace heddle {

/// Of a stream on which a program ran.
struct StreamSizes {
  std::vector<std::int64_t> documents;  ///< tokens of each
  std::int64_t supervised_tokens = 0;
  bool is_first_micro_batch = true;  ///< of its optimizer step: gradients are overwritten

  std::int64_t tokens() const;
};

/// What an instruction has to do at least, however well its kernel is written.
struct Work {
  double flops = 0;
  bool in_bf16 = false;  ///< they are products of factors in bf16
  MemoryTraffic bytes;   ///< every operand once; of tables only the rows that are looked up; no workspace
};

/// FLOPs are Operation::flops, by document, so that attention counts no pairs between two of them, and for losses of
/// the supervised tokens alone. Movements of data have none of either.
Work work_of(const StepProgram& program, const Instruction& instruction, const StreamSizes& sizes);

/// A program that ran: seconds by instruction, of all its executions together.
struct ProgramRuns {
  const StepProgram* program = nullptr;
  std::vector<double> seconds;
  std::vector<StreamSizes> executions;
};

/// Instructions that have phase, operation and shapes in common. All figures are of one optimizer step.
struct InstructionGroup {
  Phase phase = Phase::forward;
  std::string operation = {};
  std::string shapes = {};  ///< capacities of the operands
  double calls = 0;
  double seconds = 0;
  Work work = {};
  double ceiling_seconds = 0;     ///< what the ceiling that binds would allow; 0 for movements of data
  bool is_compute_bound = false;  ///< by multiply-adds; else by memory
};

/// Where an optimizer step's time went, on one rank.
struct InstructionTable {
  ThreadCeilings ceilings;
  int steps = 0, ranks = 1;
  double step_seconds = 0;               ///< from one step to the next: what lies between instructions included
  double tokens = 0;                     ///< of one step, of all ranks
  std::vector<InstructionGroup> groups;  ///< longest first

  InstructionGroup total() const;
};

/// The roofline (Williams, Waterman, Patterson 2009): an instruction takes at least its FLOPs at the rate of
/// multiply-adds, and at least its bytes at the rates of memory.
InstructionTable make_instruction_table(std::span<const ProgramRuns> runs, const ThreadCeilings& ceilings, int steps);

std::string instruction_table_text(const InstructionTable& table);
Json instruction_table_document(const InstructionTable& table);

/// Compiles the run, fills its weights as training would, and runs `steps` optimizer steps on its data (after one that
/// does not count), or on random ids where it names none. Writes nothing.
InstructionTable measure_steps(const RunFile& run, int steps, const CeilingProgress& progress);

}  // namespace heddle
