#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "ops/kernel.h"
#include "program/passes/passes.h"
#include "program/program.h"
#include "tiers/arena.h"
#include "tiers/swap_file.h"
#include "train/held_bytes.h"
#include "train/movement_queue.h"
#include "train/snapshot_guard.h"
#include "train/step_timeline.h"

namespace heddle {

/// Finds the kernel of an operation; null where the backend has none.
using KernelTable = Kernel (*)(std::string_view operation);

/// Runs step programs on the memory of their tiers. Binding happens at construction; run() allocates nothing.
class Executor {
 public:
  /// The programs must have been allocated together; they must outlive the executor and not change. The communicator is
  /// that of the ranks for which they were sharded; null where nothing is. Others may use it while no program runs.
  /// `nvme_folder` is where the nvme tier's file lies, if there is one; `transfers` says how it is read and written.
  Executor(const std::vector<const StepProgram*>& programs, const MemoryPlan& plan, KernelTable kernels, int threads,
           Communicator* communicator = nullptr, const std::filesystem::path& nvme_folder = {},
           const TransferOptions& transfers = {});

  /// Executes the program of that index once. scalars.tokens is at most the program's capacity. `update`: what
  /// instructions of Phase::update are given in place of `scalars`.
  void run(std::size_t program, const Scalars& scalars, const Scalars* update = nullptr);

  /// A persistent buffer of any program, with its full shape; throws Error if there is none. One of the nvme tier is
  /// seen through a mapping: whoever touched it calls release_nvme() before a program runs.
  TensorView persistent(std::string_view label) const;
  bool has_persistent(std::string_view label) const;
  void release_nvme() { swap_.drop_mapped(); }
  /// Whoever fills persistent buffers one after another says so of each part, by any thread: of the nvme tier's mapping
  /// no more than some MiB then stay in memory.
  void filled(std::span<const std::byte> memory);

  /// Copies what a view of a persistent buffer shows, of the nvme tier without its mapping. Also while a program runs,
  /// by any thread; what the program changes meanwhile is the caller's business.
  void read(std::span<const std::byte> from, std::span<std::byte> to) const;
  /// Calls use(instruction, memory) for everything that instructions of a program write.
  void visit_written(std::size_t program,
                     const std::function<void(std::size_t, std::span<const std::byte>)>& use) const;
  /// Is asked before each instruction from now on; null: none is.
  void set_guard(SnapshotGuard* guard) { guard_ = guard; }
  /// Memory for a save: its own where the plan has it (MemoryPlan::save_buffer_bytes), else the kernels' scratch, which
  /// no program may use meanwhile.
  std::span<std::byte> save_buffers() const { return save_buffers_; }

  /// Bytes held, counted while running from what each instruction was given; same form as the plan.
  TierBills held() const;

  /// Seconds spent so far by phase, and by instruction of a program.
  const std::array<double, 4>& seconds_by_phase() const { return phase_seconds_; }
  /// Seconds spent so far waiting for collectives or transfers; not in those of the phases.
  double seconds_waiting(Queue queue) const { return wait_seconds_[static_cast<std::size_t>(queue)]; }
  const std::vector<double>& seconds_by_instruction(std::size_t program) const { return bound_[program].seconds; }
  std::uint64_t runs(std::size_t program) const { return bound_[program].runs; }

  /// From now on appends every instruction that runs; null: no more.
  void record(StepRecording* recording) { recording_ = recording; }

 private:
  struct Step {
    Kernel kernel;  // null for a movement
    Queue queue;    // of the movement
    int movement;   // its index, of the one that is waited for; -1 for kernels
    bool is_waiting;
    std::int64_t first_token;                                  // of a tile: without tokens it does not run
    std::uint32_t first_input, inputs, first_output, outputs;  // ranges of `views`
    std::uint32_t first_coming, coming;                        // range of `weights`, as KernelCall says
  };
  struct Bound {
    const StepProgram* program;
    std::vector<TensorView> views;
    std::vector<std::pair<std::uint32_t, int>> token_views;  // index of a view, its buffer
    std::vector<TensorView> weights;                         // of products
    std::vector<Step> steps;
    std::vector<BoundMovement> movements;
    std::vector<std::uint64_t> tickets;  // of movements, in this run
    std::vector<double> seconds;
    std::int64_t capacity = 0, tokens = -1;
    std::uint64_t runs = 0;
  };

  TensorView view_of(const Buffer& buffer) const;
  Bound bind(const StepProgram& program, KernelTable kernels) const;
  void bind_coming(Bound& bound) const;
  BoundMovement bind_movement(const StepProgram& program, const Instruction& instruction) const;
  void run_movement(Bound& bound, const Step& step, const Scalars& scalars);

  bool is_swapped(std::span<const std::byte> memory) const {
    return swap_.bytes() > 0 && memory.data() >= swap_.mapped() && memory.data() < swap_.mapped() + swap_.bytes();
  }

  Arena device_, host_;
  SwapFile swap_;
  std::atomic<std::uint64_t> filled_bytes_ = 0;
  Scratch scratch_;
  std::span<std::byte> save_buffers_;
  SnapshotGuard* guard_ = nullptr;
  std::vector<Bound> bound_;
  HeldBytes held_;
  StepRecording* recording_ = nullptr;
  std::array<double, 4> phase_seconds_{};
  std::array<double, 3> wait_seconds_{};  // by queue
  std::unique_ptr<MovementQueue> communication_, transfer_;
};

}  // namespace heddle
