// What the shard pass puts where, on toy programs. That ranks give the bits of one is proved by running them
// (tests/endtoend).
#include <gtest/gtest.h>

#include "toy.h"

namespace heddle {
namespace {

struct Compiled {
  Parameters parameters;
  StepProgram step, norm, update;
  MemoryPlan plan;
};

Compiled compile(const Sharding& sharding, DType type = DType::bf16) {
  Compiled c;
  c.step = toy::forward(c.parameters, 32, type);
  differentiate(c.step);
  accumulate(c.step);
  shard(c.step, sharding);
  c.norm = make_norm_program(c.parameters, sharding);
  c.update = make_optimizer_program(c.parameters, type, sharding);
  c.plan = allocate({&c.step, &c.norm, &c.update}, 4096);
  return c;
}

std::uint64_t greatest(const Compiled& c, BufferClass buffer_class) {
  return c.plan.device.greatest[static_cast<std::size_t>(buffer_class)];
}

std::size_t position(const StepProgram& program, const Instruction* instruction) {
  return static_cast<std::size_t>(instruction - program.instructions.data());
}

TEST(Partition, PiecesAreEqualAndMakeUpTheTensorOnce) {
  for (const std::int64_t elements : {1, 15, 16, 1000, 16384, 100001}) {
    for (const int ranks : {1, 2, 3, 4, 7, 8, 64}) {
      const Partition partition{elements, ranks};
      EXPECT_GE(partition.padded(), elements);
      EXPECT_EQ(partition.begin(0), 0);
      EXPECT_EQ(partition.end(ranks - 1), elements);
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_LE(partition.end(rank) - partition.begin(rank), partition.piece());
        EXPECT_EQ(partition.begin(rank), rank > 0 ? partition.end(rank - 1) : 0);
        // The gradient norm is a sum over whole blocks.
        EXPECT_TRUE(partition.begin(rank) == elements || partition.begin(rank) % block_elements(elements) == 0);
      }
    }
  }
}

TEST(Shard, ModelStatesAreThoseOfTheZeroPaper) {
  // Rajbhandari et al. 2020, section 5, with gradients of 4 bytes: (2+4+12) P, (2+4) P + 12 P/N, 2 P + 16 P/N, 18 P/N.
  // All tensors of the toy model but its norms are multiples of 4 ranks x 16 elements.
  constexpr int kRanks = 4;
  for (const int stage : {0, 1, 2, 3}) {
    const Compiled c = compile({.stage = stage, .ranks = kRanks, .rank = 1});
    std::uint64_t padded = 0, whole = 0;
    for (const auto& parameter : c.parameters.list) {
      whole += static_cast<std::uint64_t>(parameter.shape.elements());
      padded += static_cast<std::uint64_t>((parameter.shape.elements() + 63) / 64 * 64);
    }
    const auto share = [&](int from) { return stage >= from ? padded / kRanks : from == 2 ? padded : whole; };
    EXPECT_EQ(greatest(c, BufferClass::parameters), 2 * (stage == 3 ? padded / kRanks : stage == 0 ? whole : padded));
    EXPECT_EQ(greatest(c, BufferClass::master_weights), 4 * share(1)) << stage;
    EXPECT_EQ(greatest(c, BufferClass::gradients), 4 * share(2)) << stage;
    EXPECT_EQ(greatest(c, BufferClass::optimizer_states), 8 * share(1)) << stage;
  }
}

TEST(Shard, AllRanksHaveTheSamePlan) {
  for (const int stage : {0, 1, 2, 3}) {
    const auto first = compile({.stage = stage, .ranks = 3, .rank = 0}).plan.device;
    const auto last = compile({.stage = stage, .ranks = 3, .rank = 2}).plan.device;
    EXPECT_EQ(first.peak, last.peak);
    EXPECT_EQ(first.at_peak, last.at_peak);
    EXPECT_EQ(first.greatest, last.greatest);
  }
}

TEST(Shard, EveryGradientIsReducedOnceAndAfterItsLastWriter) {
  for (const int stage : {0, 1, 2, 3}) {
    const Compiled c = compile({.stage = stage, .ranks = 2, .rank = 1});
    std::size_t reduced = 0;
    for (const auto* reduce : toy::all(c.step, "reduce_scatter")) {
      reduced += reduce->inputs.size();
      for (const int contribution : reduce->inputs) {
        for (std::size_t i = position(c.step, reduce); i < c.step.instructions.size(); ++i) {
          const auto& later = c.step.instructions[i];
          if (later.operation->moves_data) continue;
          for (const int output : later.outputs)
            EXPECT_FALSE(output >= 0 && c.step.root(output) == c.step.root(contribution));
        }
      }
    }
    EXPECT_EQ(reduced, c.parameters.list.size()) << stage;
  }
}

TEST(Shard, GradientsThatRanksHoldWholeAreWrittenWhole) {
  // So that the process comes to hold what is planned; nothing else of a gradient's size is there beside them.
  for (const int stage : {0, 1}) {
    for (const bool is_ordered : {true, false}) {
      for (const int accumulation : {1, 3}) {
        const Compiled c =
            compile({.stage = stage, .ranks = 2, .rank = 1, .accumulation = accumulation, .is_ordered = is_ordered});
        for (const auto& parameter : c.parameters.list) {
          const int root = c.step.find_persistent(gradient_label(parameter.name));
          bool is_whole = false;
          for (const auto& instruction : c.step.instructions) {
            if (instruction.operation->moves_data) continue;
            for (const int output : instruction.outputs) {
              if (output >= 0 && c.step.root(output) == root)
                is_whole |= c.step.at(output).type.shape.elements() == parameter.shape.elements();
            }
          }
          EXPECT_TRUE(is_whole) << parameter.name << ", stage " << stage << ", " << accumulation;
        }
        std::uint64_t pieces = 0;
        for (const auto& parameter : c.parameters.list)
          pieces += 2 * static_cast<std::uint64_t>(parameter.shape.elements());
        EXPECT_LE(greatest(c, BufferClass::communication), accumulation > 1 && is_ordered ? pieces + 64 : 0);
      }
    }
  }
}

TEST(Shard, AWeightIsGatheredBeforeAndWaitedForWhereItIsUsed) {
  const Compiled c = compile({.stage = 3, .ranks = 2, .rank = 0});
  std::vector<int> ready(c.step.buffers.size(), 0);
  for (const auto& instruction : c.step.instructions) {
    if (instruction.operation->name == "wait") {
      for (const int id : instruction.inputs) ready[static_cast<std::size_t>(c.step.root(id))] = 1;
    }
    if (instruction.operation->moves_data) continue;
    for (const int input : instruction.inputs) {
      if (input < 0 || !c.step.at(input).label.ends_with("gathered")) continue;
      EXPECT_TRUE(ready[static_cast<std::size_t>(c.step.root(input))]) << instruction.operation->name;
    }
  }
  // Forward and backward of the two blocks, the embedding's table forward, the tied head once: 2 + 2 + 1 + 1 calls.
  EXPECT_EQ(toy::all(c.step, "all_gather").size(), 6u);
}

TEST(Shard, OverlapHoldsTwoUnitsAndItsAbsenceOne) {
  const Compiled apart = compile({.stage = 3, .ranks = 2, .overlaps = false});
  const Compiled overlapped = compile({.stage = 3, .ranks = 2});
  EXPECT_LT(greatest(apart, BufferClass::communication), greatest(overlapped, BufferClass::communication));
}

TEST(Shard, SmallWeightsBelowTheThresholdStayWhole) {
  const Compiled c = compile({.stage = 3, .ranks = 2, .persistence_threshold = 17});  // the norms have 16 elements
  EXPECT_EQ(c.step.at(c.step.find_persistent("block.0.norm")).bytes(), 2 * 32);       // padded for two ranks
  EXPECT_EQ(c.step.at(c.step.find_persistent("block.0.up")).bytes(), 2 * 48 * 16 / 2);
}

TEST(Shard, OneRankThatAccumulatesMakesEachGradientApart) {
  const Compiled c = compile({.ranks = 1, .accumulation = 2});
  EXPECT_EQ(toy::all(c.step, "accumulate_gradient").size(), c.parameters.list.size());
  EXPECT_TRUE(toy::all(compile({.ranks = 1, .accumulation = 1}).step, "accumulate_gradient").empty());
  EXPECT_TRUE(
      toy::all(compile({.ranks = 1, .accumulation = 2, .is_ordered = false}).step, "accumulate_gradient").empty());
}

}  // namespace
}  // namespace heddle
