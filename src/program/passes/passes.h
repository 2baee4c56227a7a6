#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "program/builder.h"
#include "program/program.h"

/// Passes over a StepProgram. Each does one thing, knows no model, no kernel and no file.
namespace heddle {

/// Appends the backward from each operation's own rule, in reverse order. Gradients of trainable weights get persistent
/// f32 buffers (labels gradient_label(name)). The program must end in a loss.
void differentiate(StepProgram& program);

enum class RecomputeMode { none, selective, full };
/// Drops activations and emits again what rebuilds them in the backward: selective, the outputs of operations that are
/// cheap to recompute, each just before its first use; full, everything inside a unit whose name starts with "block",
/// from the unit's inputs (Chen et al. 2016, arXiv:1604.06174). Runs after differentiate; changes no bit of any result.
void recompute(StepProgram& program, RecomputeMode mode);

/// Makes each gradient add up over micro-batches and over several writers in one micro-batch: the first writer
/// overwrites in the first micro-batch of an optimizer step and adds in the others, later ones always add.
void accumulate(StepProgram& program);

/// Makes sums where their neighbours read or write anyway: x + linear(a) in the product, norm(x + y) in the norm. Runs
/// after recompute, so that what is computed again is fused as it was the first time.
void fuse(StepProgram& program);

/// Removes instructions whose results nothing uses.
void remove_dead_instructions(StepProgram& program);

/// Bytes by class.
struct Bill {
  std::uint64_t peak = 0;                                ///< bytes of the arena
  std::array<std::uint64_t, kBufferClasses> at_peak{};   ///< by class; they sum to peak (gaps count as workspace)
  std::array<std::uint64_t, kBufferClasses> greatest{};  ///< by class, at any time
};

/// Where everything lies: one arena for all programs of a run.
struct MemoryPlan {
  Bill device;
  std::uint64_t persistent_bytes = 0;  ///< the front of the arena; transient buffers of all programs share the rest
  std::uint64_t scratch_offset = 0;    ///< of the kernels' scratch (class workspace), persistent
  std::uint64_t scratch_bytes = 0;
};

/// Assigns every buffer of every program an offset in its tier's arena: persistent buffers by label, the others by
/// lifetime, larger ones first at the lowest offset that is free throughout (Pisarchyk, Lee 2020, arXiv:2001.03288).
/// Outputs that may be computed in place take their input's memory.
MemoryPlan allocate(const std::vector<StepProgram*>& programs, std::uint64_t scratch_bytes);

/// Programs that make an optimizer step of accumulated gradients, for the trainable parameters in order.
StepProgram make_norm_program(const Parameters& parameters);
struct AdamWSettings {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0.0;
};
/// Weight decay falls on tensors of two or more dimensions. Master weights are separate unless `activation_type` is
/// f32.
StepProgram make_adamw_program(const Parameters& parameters, DType activation_type, const AdamWSettings& settings);

}  // namespace heddle
