#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "ops/token_sums.h"
#include "program/builder.h"
#include "program/partition.h"
#include "program/program.h"

/// Passes over a StepProgram. Each does one thing, knows no model, no kernel and no file.
namespace heddle {

/// Appends the backward from each operation's own rule, in reverse order. Gradients of trainable weights get persistent
/// f32 buffers (labels gradient_label(name)). The program must end in a loss.
void differentiate(StepProgram& program);

enum class RecomputeMode { none, selective, full };
/// Drops activations and emits again what rebuilds them in the backward, each just before its first use. In every mode
/// operations of one pass (Recomputed::always) whose operands are kept anyway; selective: attention too; full:
/// everything inside a unit whose name starts with "block", from the unit's inputs (Chen et al. 2016,
/// arXiv:1604.06174). Runs after differentiate; changes no bit of any result.
/// With `rebuilds_mlp` the backward of each MLP rebuilds its inside from its input in every mode, for tile_mlp().
void recompute(StepProgram& program, RecomputeMode mode, bool rebuilds_mlp = false);
/// The same with a mode for each of the program's units.
void recompute(StepProgram& program, std::span<const RecomputeMode> mode_of_unit, bool rebuilds_mlp = false);

/// Makes each gradient add up over micro-batches and over several writers in one micro-batch: the first writer
/// overwrites in the first micro-batch of an optimizer step and adds in the others, later ones always add. Where a step
/// has `one_micro_batch`, the first writer always overwrites, so that allocate() needs no memory for a gradient before.
void accumulate(StepProgram& program, bool one_micro_batch = false);

/// Makes sums where their neighbours read or write anyway: x + linear(a) in the product, norm(x + y) in the norm. Runs
/// after recompute, so that what is computed again is fused as it was the first time.
void fuse(StepProgram& program);

/// Computes products of one x together (q, k and v; gate and up), where the first of them is: with one row, as in
/// generation, they are one pass over all their weights. On programs without a backward; runs after fuse. Changes no
/// bit.
void group_linears(StepProgram& program);

/// Computes the MLP of each block, and its backward, for so many tokens after another, so that of what lies between its
/// input and its output one tile is there at a time (TiledMLP of Arctic Long Sequence Training, Bekman et al. 2025,
/// arXiv:2506.13996). Runs after fuse and before accumulate; on programs without a backward too. Gradients of weights
/// gather over the tiles: tiles of whole blocks of kTokenSumBlock tokens change no bit.
void tile_mlp(StepProgram& program, std::int64_t tokens);

/// Which kinds of buffers leave the device, and for which tier.
struct Offload {
  Tier parameters = Tier::device;
  Tier optimizer = Tier::device;  ///< optimizer states and master weights
  Tier gradients = Tier::device;  ///< nvme: by swap_gradients(), and shard() puts them into host memory
  Tier activations = Tier::device;
  /// By the labels of their gradients, with each all that are made by the same instruction: weights whose optimizer
  /// states and master weights stay on the device all the same, and their gradients beside them.
  std::set<std::string> resident_states = {};
  /// Where gradients leave for the nvme tier: those that stay in memory all the same, beside the states.
  std::set<std::string> resident_gradients = {};
  std::vector<bool> resident_units = {};  ///< by unit: its activations stay on the device all the same; empty: none's

  /// Of the states of the weight that has the gradient of this label.
  Tier tier_of_states(const std::string& label) const;
  Tier tier_of_gradient(const std::string& label) const;
  /// The same for what shard() makes: those on their way to the nvme tier are in host memory first.
  Tier memory_of_gradient(const std::string& label) const;
};

/// ZeRO (Rajbhandari et al. 2020, arXiv:1910.02054): what the ranks share out is gathered before its first use in each
/// unit's forward or backward and dropped after the last (stage 3), and each unit's gradients are reduced to the rank
/// that owns them as soon as they are complete (all stages); both while another unit is computed. Runs after
/// accumulate; also on programs without a backward, so that they find the same persistent buffers.
///
/// In ordered mode the gradient of an optimizer step is the sum of its micro-batches' gradients from left to right,
/// micro-batch i being the i / R th of rank i % R. So each is made apart and added as a whole, by one rank too.
///
/// What gathers gradients may lie in another tier (not where ranks hold them whole): then, too, they are made apart.
void shard(StepProgram& program, const Sharding& sharding, const Offload& offload = {});

/// Gradients that one instruction makes, all that it makes.
struct GradientGroup {
  std::vector<std::string> labels;
  bool is_of_several_units = false;  ///< others add to them later in the backward
};
/// In the order of the backward. Runs after accumulate.
std::vector<GradientGroup> gradient_groups(const StepProgram& program);

/// Moves each gradient that is not resident to the nvme tier as soon as a micro-batch has added to it, and back to be
/// added to: in host memory are those under way. The sums of their squares are made meanwhile, so that the norm need
/// not read them again. Runs after shard() has put them into host memory, and after offload(), which takes the
/// instructions of a unit between two transfers as a whole; changes no bit.
void swap_gradients(StepProgram& program, const Parameters& parameters, const Sharding& sharding,
                    const Offload& offload);

/// Moves weights, and activations that the backward needs, to another tier. Weights come to the device for each unit
/// that uses them; activations leave it after their last use in the forward and come back before their first in the
/// backward. Transfers are instructions that run while another unit is computed. Runs after shard; changes no bit.
void offload(StepProgram& program, const Offload& offload);

/// Removes instructions whose results nothing uses.
void remove_dead_instructions(StepProgram& program);

/// Bytes by class.
struct Bill {
  std::uint64_t peak = 0;                                ///< bytes of the arena
  std::array<std::uint64_t, kBufferClasses> at_peak{};   ///< by class; they sum to peak (gaps count as workspace)
  std::array<std::uint64_t, kBufferClasses> greatest{};  ///< by class, at any time
};

/// A bill for each tier; Tier is the index.
using TierBills = std::array<Bill, 3>;

/// Where everything lies: one arena a tier for all programs of a run, with what is persistent in front.
struct MemoryPlan {
  Bill device, host, nvme;
  std::uint64_t scratch_offset = 0;  ///< in the device's arena, of the kernels' scratch (class workspace), persistent
  std::uint64_t scratch_bytes = 0;
  std::uint64_t shared_scratch_bytes = 0;  ///< of these, the part that threads share
  std::uint64_t save_buffer_bytes = 0;     ///< of these, at their end, what saves use while programs run
  std::uint64_t staging_bytes = 0;         ///< of the communicator's own, outside the arena; counted in `device`

  TierBills bills() const { return {device, host, nvme}; }
  /// Counts what the communicator holds for messages on their way (class communication).
  void add_staging(std::uint64_t bytes);
};

/// Assigns every buffer of every program an offset in its tier's arena: persistent buffers by label, the others by
/// lifetime, larger ones first at the lowest offset that is free throughout (Pisarchyk, Lee 2020, arXiv:2001.03288).
/// Outputs that may be computed in place take their input's memory. Persistent gradients that the first program naming
/// them overwrites are carried (Buffer::is_carried): until then their memory serves others, there and in other programs
/// that overwrite them.
MemoryPlan allocate(const std::vector<StepProgram*>& programs, std::uint64_t scratch_bytes);

/// Programs that make an optimizer step of accumulated gradients, for the trainable parameters in order. Each rank
/// updates the elements that it owns; whole weights are gathered after their update.
StepProgram make_norm_program(const Parameters& parameters, const Sharding& sharding = {}, const Offload& offload = {});
/// Weight decay falls on tensors of two or more dimensions. Master weights are separate unless `activation_type` is
/// f32.
/// States in the host tier are updated where they lie; those in the nvme tier come to the host a piece at a time and go
/// back, while the piece before is updated; small ones some MiB ahead. States of tensors as a whole stay in host memory
/// then.
/// An update that needs the whole of a tensor (adafactor, muon) gathers its gradient where ranks share it out, computes
/// the direction on every rank, and each rank steps with its own elements of it.
///
/// `updated`: of all weights, or of those of which nothing that an update of single elements needs lies in the nvme
/// tier, or of the others.
enum class UpdatedWeights : std::uint8_t { all, in_memory, streamed };
StepProgram make_optimizer_program(const Parameters& parameters, DType activation_type, const Sharding& sharding = {},
                                   const Offload& offload = {}, UpdatedWeights updated = UpdatedWeights::all);

/// Puts an update that the step before has left into the forward of a micro-batch: each weight is updated before it is
/// used, and what comes from the nvme tier and goes there moves while the units before are computed. Runs on programs
/// of one rank after all passes but allocate(); changes no bit.
void update_ahead(StepProgram& step, const StepProgram& update);

/// What training adds to a model's forward: noise on the embeddings (Jain et al. 2023, NEFTune, arXiv:2310.05914), and
/// to the loss label smoothing (Szegedy et al. 2016, arXiv:1512.00567) and z-loss (Chowdhery et al. 2022, PaLM,
/// arXiv:2204.02311). 0: none of it.
struct Regularization {
  double neftune_noise_alpha = 0.0, label_smoothing = 0.0, z_loss = 0.0;
};
/// Runs before differentiate, on the program of a training micro-batch alone.
void regularize(StepProgram& program, const Regularization& regularization);

}  // namespace heddle
