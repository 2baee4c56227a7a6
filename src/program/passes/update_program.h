#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "program/optimizer.h"
#include "program/passes/passes.h"

/// What the programs of an optimizer step are built with: which elements of each tensor this rank works on, and updates
/// a piece at a time of what lies far away.
namespace heddle {

/// A program of one optimizer step under construction.
class UpdateProgram {
 public:
  UpdateProgram(std::string name, const Parameters& parameters, const Sharding& sharding, const Offload& offload);

  StepProgram program;
  std::vector<const Parameter*> trainable;

  int persistent(std::string_view label, DType type, const Shape& shape, BufferClass buffer_class);

  /// Elements [begin, begin + count) of a buffer, as one axis.
  int view(int id, std::int64_t begin, std::int64_t count);

  /// The buffer of a tensor, whole (with room for padding) or this rank's piece of it.
  int root(const std::string& label, DType type, const Parameter& parameter, BufferClass buffer_class, bool is_sharded);

  /// Of such a buffer, the elements that this rank updates: its own where optimizer states are sharded, else all.
  int updated(int root, const Parameter& parameter, bool is_sharded);
  std::int64_t first_updated(const Parameter& parameter) const;
  /// The most elements of a tensor that a rank updates: memory is planned for these, on all ranks alike.
  std::int64_t planned_elements(const Parameter& parameter) const;

  /// The buffer of an optimizer state, of which this rank updates all that it holds.
  int state(const Parameter& parameter, const OptimizerState& state);

  /// The root of a gradient.
  int gradient(const Parameter& parameter);
  /// The same in memory: fetched, where it lies in the nvme tier, into a buffer that lives while it is used.
  int gradient_in_memory(const Parameter& parameter);

  /// Puts a root on another tier; on nvme with room for transfers of whole pages. Before views are taken of it.
  int move(int root, Tier tier);

  Instruction& append(std::string_view operation, Queue queue);

  /// Starts an all-gather in place of roots that are whole and padded.
  void start_gather(const std::vector<std::pair<int, const Parameter*>>& roots);
  void wait_for_gathers();

  /// The sum over ranks of whole gradients, each rank's own piece of it, in place.
  void reduce(const std::vector<std::pair<int, const Parameter*>>& roots);

  /// A whole gradient, as elements without padding: gathered where the ranks share it out, in place or into a buffer
  /// that lives while it is used.
  int gathered_gradient(int root, const Parameter& parameter);

  const Sharding& sharding() const { return sharding_; }

 private:
  template <typename Body>
  void for_each_piece(const std::vector<std::pair<int, const Parameter*>>& roots, Body&& body);

  const Sharding& sharding_;
  const Offload& offload_;
  std::vector<int> gathered_;
};

/// What an update writes: a buffer of one dimension, and how many elements of the gradient each of its elements covers.
struct Updated {
  int id = -1;  ///< -1: absent
  std::int64_t covered = 1;
};

/// Appends elementwise updates. What lies in the nvme tier is read and updated a piece at a time in host memory: the
/// next piece is fetched, and the last one stored, while one is updated. An instruction stands in the program once the
/// next update is appended, or at finish().
class UpdateOfPieces {
 public:
  explicit UpdateOfPieces(UpdateProgram& made);

  /// Inputs of the operation: the gradient (or a direction), and `factor` unless it is -1.
  void append(std::string_view operation, const Parameter& parameter, int gradient, int factor,
              const std::vector<Updated>& updated, const Attributes& attributes);
  void finish();

 private:
  struct Piece {
    std::vector<int> far, near;  // views in the nvme tier, and where they are updated
    std::size_t changed = 0;     // of these, the first that go back
  };
  struct Pending {
    std::string_view operation;
    Piece piece;
    std::vector<int> inputs, outputs;
    Attributes attributes;
  };

  int stage(int id, std::int64_t begin, std::int64_t size, std::int64_t room, Piece& piece);
  std::int64_t elements_of(int id) const;
  void fetch(const Piece& piece);
  std::int64_t staged_bytes(const Piece& piece) const;
  /// The first of those pending, until no more than so many bytes are staged for the others.
  void finish_updates(std::int64_t most);
  void finish_update(const Pending& now);
  void wait_for_store();

  UpdateProgram& made_;
  std::int64_t ahead_ = 0;        // bytes of pieces that are small, in memory at a time
  std::vector<Pending> pending_;  // those whose operands are fetched, and between them those that are in memory
  std::vector<int> stored_;       // on their way to the nvme tier
};

}  // namespace heddle
