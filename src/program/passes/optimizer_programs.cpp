#include <algorithm>
#include <iterator>
#include <utility>

#include "ops/block_tree.h"
#include "program/passes/passes.h"
#include "program/passes/segments.h"

namespace heddle {
namespace {

/// The program of one optimizer step under construction: which elements of each tensor this rank works on.
class OptimizerProgram {
 public:
  OptimizerProgram(std::string name, const Parameters& parameters, const Sharding& sharding, const Offload& offload)
      : sharding_(sharding), offload_(offload) {
    program.name = std::move(name);
    for (const auto& parameter : parameters.list) {
      if (parameter.is_trainable) trainable.push_back(&parameter);
    }
    program.units = {"optimizer"};
  }

  StepProgram program;
  std::vector<const Parameter*> trainable;

  int persistent(std::string_view label, DType type, const Shape& shape, BufferClass buffer_class) {
    return program.add(
        {.label = std::string(label), .type = {type, shape}, .buffer_class = buffer_class, .is_persistent = true});
  }

  /// Elements [begin, begin + count) of a buffer.
  int view(int id, std::int64_t begin, std::int64_t count) {
    Buffer made = program.at(id);
    made.type.shape = {count};
    made.view_offset += begin * static_cast<std::int64_t>(dtype_bytes(made.type.dtype));
    made.view_of = program.root(id);
    return program.add(std::move(made));
  }

  /// The buffer of a tensor, whole (with room for padding) or this rank's piece of it.
  int root(const std::string& label, DType type, const Parameter& parameter, BufferClass buffer_class,
           bool is_sharded) {
    const Partition partition = sharding_.partition(parameter.shape.elements());
    if (sharding_.ranks == 1) return persistent(label, type, parameter.shape, buffer_class);
    if (is_sharded) return persistent(label, type, {partition.piece()}, buffer_class);
    const bool is_exchanged = buffer_class == BufferClass::gradients ||
                              (buffer_class == BufferClass::parameters && sharding_.shards_optimizer());
    return persistent(label, type, {is_exchanged ? partition.padded() : partition.elements}, buffer_class);
  }

  /// Of such a buffer, the elements that this rank updates: its own where optimizer states are sharded, else all.
  int updated(int root, const Parameter& parameter, bool is_sharded) {
    const Partition partition = sharding_.partition(parameter.shape.elements());
    if (!sharding_.shards_optimizer()) return view(root, 0, partition.elements);
    const std::int64_t begin = partition.begin(sharding_.rank), count = partition.end(sharding_.rank) - begin;
    return view(root, is_sharded ? 0 : begin, count);
  }

  /// Puts a root on another tier; on nvme with room for transfers of whole pages. Before views are taken of it.
  int move(int root, Tier tier) {
    Buffer& buffer = program.at(root);
    buffer.tier = tier;
    if (tier == Tier::nvme) buffer.type.shape = {transfer_elements(buffer.type.shape.elements())};
    return root;
  }

  int gradient(const Parameter& parameter) {
    return move(root(gradient_label(parameter.name), DType::f32, parameter, BufferClass::gradients,
                     sharding_.shards_gradients()),
                offload_.gradients);
  }

  Instruction& append(std::string_view operation, Queue queue) {
    program.instructions.push_back({.operation = &find_operation(operation), .queue = queue, .phase = Phase::update});
    return program.instructions.back();
  }

  /// Calls body(root, its piece of this rank) for each of `roots`, which are whole and padded.
  template <typename Body>
  void for_each_piece(const std::vector<std::pair<int, const Parameter*>>& roots, Body&& body) {
    for (const auto& [id, parameter] : roots) {
      const std::int64_t piece = sharding_.partition(parameter->shape.elements()).piece();
      body(id, view(id, sharding_.rank * piece, piece));
    }
  }

  /// Starts an all-gather in place of those roots.
  void start_gather(const std::vector<std::pair<int, const Parameter*>>& roots) {
    if (roots.empty()) return;
    std::vector<int> pieces, wholes;
    for_each_piece(roots, [&](int whole, int piece) {
      pieces.push_back(piece);
      wholes.push_back(whole);
    });
    auto& instruction = append("all_gather", Queue::communication);
    instruction.inputs = std::move(pieces);
    instruction.outputs = wholes;
    gathered_.insert(gathered_.end(), wholes.begin(), wholes.end());
  }

  void wait_for_gathers() {
    if (!gathered_.empty()) append("wait", Queue::compute).inputs = std::exchange(gathered_, {});
  }

  /// The sum over ranks of whole gradients, each rank's own piece of it, in place.
  void reduce(const std::vector<std::pair<int, const Parameter*>>& roots) {
    std::vector<int> wholes, pieces;
    for_each_piece(roots, [&](int whole, int piece) {
      pieces.push_back(piece);
      wholes.push_back(whole);
    });
    auto& instruction = append("reduce_scatter", Queue::communication);
    instruction.inputs = wholes;
    instruction.outputs = pieces;
    instruction.attributes = {{"ordered", std::int64_t{sharding_.is_ordered ? 1 : 0}}, {"all_ranks", std::int64_t{1}}};
    append("wait", Queue::compute).inputs = wholes;
  }

 private:
  const Sharding& sharding_;
  const Offload& offload_;
  std::vector<int> gathered_;
};

/// Appends AdamW instructions. What lies in the nvme tier is updated a piece at a time in host memory: the next piece
/// is fetched, and the last one stored, while one is updated.
class UpdateOfPieces {
 public:
  explicit UpdateOfPieces(OptimizerProgram& made) : made_(made) {}

  void append(int gradient, int factor, std::vector<int> updated, const Attributes& attributes) {
    const auto is_far = [&](int id) { return id >= 0 && made_.program.at(id).tier == Tier::nvme; };
    const std::int64_t count = made_.program.at(gradient).type.shape.elements();
    const bool streams = std::any_of(updated.begin(), updated.end(), is_far);
    for (std::int64_t begin = 0; begin < count; begin += streams ? kPiece : count) {
      const std::int64_t size = streams ? std::min(kPiece, count - begin) : count;
      Piece piece;
      const auto part = [&](int id) { return !streams || id < 0 ? id : made_.view(id, begin, size); };
      std::vector<int> outputs;
      outputs.reserve(updated.size());
      for (const int id : updated) outputs.push_back(is_far(id) ? stage(id, begin, size, piece) : part(id));
      const int of_gradient = part(gradient);
      fetch(piece);
      finish_update();
      pending_ = {std::move(piece), {of_gradient, factor}, std::move(outputs), attributes};
    }
  }

  void finish() {
    finish_update();
    wait_for_store();
  }

 private:
  static constexpr std::int64_t kPiece = std::int64_t{1} << 22;  // elements; 16 MiB of each state

  struct Piece {
    std::vector<int> far, near;  // views in the nvme tier, and where they are updated
  };
  struct Pending {
    Piece piece;
    std::vector<int> inputs, outputs;
    Attributes attributes;
  };

  /// Room in host memory for elements of `id`, in whole pages; returns a view of exactly these elements.
  int stage(int id, std::int64_t begin, std::int64_t size, Piece& piece) {
    const std::int64_t moved = transfer_elements(size);
    piece.far.push_back(made_.view(id, begin, moved));
    const Buffer& far = made_.program.at(piece.far.back());
    piece.near.push_back(made_.program.add({.label = far.label + " staged",
                                            .type = {far.type.dtype, {moved}},
                                            .buffer_class = BufferClass::workspace,
                                            .tier = Tier::host}));
    return moved == size ? piece.near.back() : made_.view(piece.near.back(), 0, size);
  }

  void fetch(const Piece& piece) {
    if (piece.far.empty()) return;
    auto& start = made_.append("transfer", Queue::transfer);
    start.inputs = piece.far;
    start.outputs = piece.near;
  }

  void finish_update() {
    if (pending_.outputs.empty()) return;
    const Pending now = std::exchange(pending_, {});
    if (!now.piece.near.empty()) made_.append("wait", Queue::compute).inputs = now.piece.near;
    append_instruction(made_.program, find_operation("adamw"), now.inputs, now.attributes, now.outputs, 0,
                       Phase::update);
    if (now.piece.near.empty()) return;
    auto& store = made_.append("transfer", Queue::transfer);
    store.inputs = now.piece.near;
    store.outputs = now.piece.far;
    wait_for_store();
    stored_ = now.piece.near;
  }

  void wait_for_store() {
    if (!stored_.empty()) made_.append("wait", Queue::compute).inputs = std::exchange(stored_, {});
  }

  OptimizerProgram& made_;
  Pending pending_;
  std::vector<int> stored_;  // on their way to the nvme tier
};

}  // namespace

StepProgram make_norm_program(const Parameters& parameters, const Sharding& sharding, const Offload& offload) {
  OptimizerProgram made("gradient norm", parameters, sharding, offload);
  const auto count = static_cast<std::int64_t>(made.trainable.size());
  const bool adds_up = sharding.accumulation > 1, is_whole = !sharding.shards_gradients();

  std::vector<std::pair<int, const Parameter*>> gradients;
  for (const auto* parameter : made.trainable) gradients.emplace_back(made.gradient(*parameter), parameter);
  if (sharding.ranks > 1 && is_whole && adds_up) {
    if (!sharding.is_ordered) made.reduce(gradients);
    if (sharding.stage == 0) made.start_gather(gradients);
    made.wait_for_gathers();
  }

  const std::int64_t pieces = sharding.shards_optimizer() ? sharding.ranks : 1, slots = count * kMostRuns;
  const int sums =
      made.persistent(labels::sums_of_squares, DType::f64, {pieces, count, kMostRuns}, BufferClass::workspace);
  const std::int64_t own = pieces > 1 ? sharding.rank * slots : 0;
  std::vector<double> elements;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto& [gradient, parameter] = gradients[static_cast<std::size_t>(i)];
    const std::int64_t size = parameter->shape.elements();
    elements.push_back(static_cast<double>(size));
    const int x = made.updated(gradient, *parameter, sharding.shards_gradients());
    const int y = made.view(sums, own + i * kMostRuns, kMostRuns);
    const std::int64_t begin = sharding.shards_optimizer() ? sharding.partition(size).begin(sharding.rank) : 0;
    append_instruction(made.program, find_operation("sum_of_squares"), {x}, {{"elements", size}, {"begin", begin}}, {y},
                       0, Phase::update);
  }
  if (pieces > 1) {
    const int piece = made.view(sums, own, slots);
    auto& gather = made.append("all_gather", Queue::communication);
    gather.inputs = {piece};
    gather.outputs = {sums};
    made.append("wait", Queue::compute).inputs = {sums};
  }
  const int norm = made.persistent(labels::gradient_norm, DType::f64, {1}, BufferClass::workspace);
  const int factor = made.persistent(labels::gradient_factor, DType::f32, {1}, BufferClass::workspace);
  append_instruction(made.program, find_operation("gradient_norm"), {sums}, {{"elements", elements}, {"ranks", pieces}},
                     {norm, factor}, 0, Phase::update);
  return std::move(made.program);
}

StepProgram make_adamw_program(const Parameters& parameters, DType activation_type, const AdamWSettings& settings,
                               const Sharding& sharding, const Offload& offload) {
  OptimizerProgram made("optimizer", parameters, sharding, offload);
  const int factor = made.persistent(labels::gradient_factor, DType::f32, {1}, BufferClass::workspace);
  UpdateOfPieces update(made);
  std::vector<std::pair<int, const Parameter*>> updated_wholes;  // of the last unit
  for (const auto* parameter : made.trainable) {
    if (!updated_wholes.empty() && updated_wholes.back().second->unit != parameter->unit) {
      update.finish();
      made.start_gather(std::exchange(updated_wholes, {}));
    }
    const std::string& name = parameter->name;
    const bool shards_weight = sharding.shards_weight(parameter->shape.elements());
    const auto state = [&](const std::string& label, BufferClass buffer_class) {
      const int root = made.root(label, DType::f32, *parameter, buffer_class, sharding.shards_optimizer());
      return made.updated(made.move(root, offload.optimizer), *parameter, sharding.shards_optimizer());
    };
    const int gradient = made.updated(made.gradient(*parameter), *parameter, sharding.shards_gradients());
    const int weight = made.move(made.root(name, activation_type, *parameter, BufferClass::parameters, shards_weight),
                                 offload.parameters);
    const int master = activation_type == DType::f32 ? -1 : state(master_label(name), BufferClass::master_weights);
    const int exp_avg = state(exp_avg_label(name), BufferClass::optimizer_states);
    const int exp_avg_sq = state(exp_avg_sq_label(name), BufferClass::optimizer_states);
    const Attributes attributes = {{"beta1", settings.beta1},
                                   {"beta2", settings.beta2},
                                   {"epsilon", settings.epsilon},
                                   {"weight_decay", parameter->shape.rank() >= 2 ? settings.weight_decay : 0.0}};
    update.append(gradient, factor, {made.updated(weight, *parameter, shards_weight), master, exp_avg, exp_avg_sq},
                  attributes);
    if (sharding.shards_optimizer() && !shards_weight) updated_wholes.emplace_back(weight, parameter);
  }
  update.finish();
  made.start_gather(updated_wholes);
  made.wait_for_gathers();
  return std::move(made.program);
}

}  // namespace heddle
