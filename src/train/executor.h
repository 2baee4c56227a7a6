#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "ops/kernel.h"
#include "program/passes/passes.h"
#include "program/program.h"
#include "tiers/arena.h"

namespace heddle {

/// Finds the kernel of an operation; null where the backend has none.
using KernelTable = Kernel (*)(std::string_view operation);

/// Runs step programs on one arena. Binding happens at construction; run() allocates nothing.
class Executor {
 public:
  /// The programs must have been allocated together; they must outlive the executor and not change.
  Executor(const std::vector<const StepProgram*>& programs, const MemoryPlan& plan, KernelTable kernels, int threads);

  /// Executes the program of that index once. scalars.tokens is at most the program's capacity.
  void run(std::size_t program, const Scalars& scalars);

  /// A persistent buffer of any program, with its full shape; throws Error if there is none.
  TensorView persistent(std::string_view label) const;
  bool has_persistent(std::string_view label) const;

  /// Bytes held, counted while running from what each instruction was given; same form as the plan.
  Bill held() const;

  /// Seconds spent so far by phase, and by instruction of a program.
  const std::array<double, 4>& seconds_by_phase() const { return phase_seconds_; }
  const std::vector<double>& seconds_by_instruction(std::size_t program) const { return bound_[program].seconds; }
  std::uint64_t runs(std::size_t program) const { return bound_[program].runs; }

 private:
  struct Step {
    Kernel kernel;
    std::uint32_t first_input, inputs, first_output, outputs;  // ranges of `views`
  };
  struct Held {
    std::int64_t bytes;
    BufferClass buffer_class;
  };
  struct Bound {
    const StepProgram* program;
    std::vector<TensorView> views;
    std::vector<std::pair<std::uint32_t, int>> token_views;  // index of a view, its token axis
    std::vector<Step> steps;
    std::vector<std::vector<Held>> taken, given_back;  // by instruction
    std::vector<double> seconds;
    std::int64_t capacity = 0, tokens = -1;
    std::uint64_t runs = 0;
  };

  TensorView view_of(const Buffer& buffer) const;
  Bound bind(const StepProgram& program, KernelTable kernels) const;
  void count_persistent();

  Arena arena_;
  Scratch scratch_;
  std::vector<Bound> bound_;
  std::array<std::uint64_t, kBufferClasses> persistent_{}, greatest_{}, at_peak_{};
  std::uint64_t most_ = 0;
  std::array<double, 4> phase_seconds_{};
};

}  // namespace heddle
