#include "program/passes/update_program.h"

#include <algorithm>

#include "program/passes/segments.h"

namespace heddle {
namespace {

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

constexpr std::int64_t kPiece = std::int64_t{1} << 22;  // elements; 16 MiB of each state in f32

}  // namespace

UpdateProgram::UpdateProgram(std::string name, const Parameters& parameters, const Sharding& sharding,
                             const Offload& offload)
    : sharding_(sharding), offload_(offload) {
  program.name = std::move(name);
  for (const auto& parameter : parameters.list) {
    if (parameter.is_trainable) trainable.push_back(&parameter);
  }
  program.units = {"optimizer"};
}

int UpdateProgram::persistent(std::string_view label, DType type, const Shape& shape, BufferClass buffer_class) {
  return program.add(
      {.label = std::string(label), .type = {type, shape}, .buffer_class = buffer_class, .is_persistent = true});
}

int UpdateProgram::view(int id, std::int64_t begin, std::int64_t count) {
  Buffer made = program.at(id);
  made.type.shape = {count};
  made.view_offset += begin * static_cast<std::int64_t>(dtype_bytes(made.type.dtype));
  made.view_of = program.root(id);
  return program.add(std::move(made));
}

int UpdateProgram::root(const std::string& label, DType type, const Parameter& parameter, BufferClass buffer_class,
                        bool is_sharded) {
  const Partition partition = sharding_.partition(parameter.shape.elements());
  if (sharding_.ranks == 1) return persistent(label, type, parameter.shape, buffer_class);
  if (is_sharded) return persistent(label, type, {partition.piece()}, buffer_class);
  const bool is_exchanged = buffer_class == BufferClass::gradients ||
                            (buffer_class == BufferClass::parameters && sharding_.shards_optimizer());
  return persistent(label, type, {is_exchanged ? partition.padded() : partition.elements}, buffer_class);
}

std::int64_t UpdateProgram::first_updated(const Parameter& parameter) const {
  return sharding_.shards_optimizer() ? sharding_.partition(parameter.shape.elements()).begin(sharding_.rank) : 0;
}

int UpdateProgram::updated(int root, const Parameter& parameter, bool is_sharded) {
  const Partition partition = sharding_.partition(parameter.shape.elements());
  if (!sharding_.shards_optimizer()) return view(root, 0, partition.elements);
  const std::int64_t begin = partition.begin(sharding_.rank), count = partition.end(sharding_.rank) - begin;
  return view(root, is_sharded ? 0 : begin, count);
}

std::int64_t UpdateProgram::planned_elements(const Parameter& parameter) const {
  const Partition partition = sharding_.partition(parameter.shape.elements());
  return sharding_.shards_optimizer() ? partition.piece() : partition.elements;
}

int UpdateProgram::state(const Parameter& parameter, const OptimizerState& state) {
  const std::string label = state_label(parameter.name, state.name);
  const Tier tier = offload_.tier_of_states(gradient_label(parameter.name));
  if (state.covered == 0) {
    const int whole = persistent(label, state.dtype, state.shape, BufferClass::optimizer_states);
    return move(whole, tier == Tier::nvme ? Tier::host : tier);
  }
  const Partition partition = sharding_.partition(parameter.shape.elements());
  const bool is_sharded = sharding_.shards_optimizer();
  Shape shape = state.shape;
  if (is_sharded) shape = {divide_up(partition.piece(), state.covered)};
  const int made = persistent(label, state.dtype, shape, BufferClass::optimizer_states);
  const std::int64_t count =
      is_sharded ? partition.end(sharding_.rank) - partition.begin(sharding_.rank) : partition.elements;
  return view(move(made, tier), 0, divide_up(count, state.covered));
}

int UpdateProgram::gradient(const Parameter& parameter) {
  const std::string label = gradient_label(parameter.name);
  return move(root(label, DType::f32, parameter, BufferClass::gradients, sharding_.shards_gradients()),
              offload_.tier_of_gradient(label));
}

int UpdateProgram::gradient_in_memory(const Parameter& parameter) {
  const int far = gradient(parameter);
  if (program.at(far).tier != Tier::nvme) return far;
  Buffer staged = program.at(far);
  staged.label += " staged";
  staged.buffer_class = BufferClass::workspace;
  staged.tier = Tier::host;
  staged.is_persistent = false;
  const int near = program.add(std::move(staged));
  auto& fetch = append("transfer", Queue::transfer);
  fetch.inputs = {far};
  fetch.outputs = {near};
  append("wait", Queue::compute).inputs = {near};
  const Partition partition = sharding_.partition(parameter.shape.elements());
  return view(near, 0, sharding_.shards_gradients() ? partition.piece() : partition.elements);
}

int UpdateProgram::move(int root, Tier tier) {
  Buffer& buffer = program.at(root);
  buffer.tier = tier;
  if (tier == Tier::nvme) {
    buffer.type.shape = {transfer_elements(buffer.type.shape.elements(), dtype_bytes(buffer.type.dtype))};
  }
  return root;
}

Instruction& UpdateProgram::append(std::string_view operation, Queue queue) {
  program.instructions.push_back({.operation = &find_operation(operation), .queue = queue, .phase = Phase::update});
  return program.instructions.back();
}

template <typename Body>
void UpdateProgram::for_each_piece(const std::vector<std::pair<int, const Parameter*>>& roots, Body&& body) {
  for (const auto& [id, parameter] : roots) {
    const std::int64_t piece = sharding_.partition(parameter->shape.elements()).piece();
    body(id, view(id, sharding_.rank * piece, piece));
  }
}

void UpdateProgram::start_gather(const std::vector<std::pair<int, const Parameter*>>& roots) {
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

void UpdateProgram::wait_for_gathers() {
  if (!gathered_.empty()) append("wait", Queue::compute).inputs = std::exchange(gathered_, {});
}

void UpdateProgram::reduce(const std::vector<std::pair<int, const Parameter*>>& roots) {
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

int UpdateProgram::gathered_gradient(int root, const Parameter& parameter) {
  int whole = root;
  if (sharding_.shards_gradients()) {
    const Buffer piece = program.at(root);
    const std::int64_t padded = sharding_.partition(parameter.shape.elements()).padded();
    whole = program.add({.label = piece.label + " gathered",
                         .type = {piece.type.dtype, {padded}},
                         .buffer_class = BufferClass::communication,
                         .tier = piece.tier});
    auto& gather = append("all_gather", Queue::communication);
    gather.inputs = {root};
    gather.outputs = {whole};
    append("wait", Queue::compute).inputs = {whole};
  } else if (sharding_.shards_optimizer()) {
    const std::int64_t piece = sharding_.partition(parameter.shape.elements()).piece();
    const int own = view(root, sharding_.rank * piece, piece);
    auto& gather = append("all_gather", Queue::communication);
    gather.inputs = {own};
    gather.outputs = {root};
    append("wait", Queue::compute).inputs = {root};
  }
  const int elements = view(whole, 0, parameter.shape.elements());
  program.at(elements).type.shape = parameter.shape;
  return elements;
}

UpdateOfPieces::UpdateOfPieces(UpdateProgram& made) : made_(made) {
  constexpr std::int64_t kMost = std::int64_t{16} << 20, kShare = 16;
  for (const auto* parameter : made.trainable)
    ahead_ += made.planned_elements(*parameter) * static_cast<std::int64_t>(sizeof(float));
  ahead_ = std::min(kMost, ahead_ / kShare);
}

void UpdateOfPieces::append(std::string_view operation, const Parameter& parameter, int gradient, int factor,
                            const std::vector<Updated>& updated, const Attributes& attributes) {
  const auto is_far = [&](const Updated& u) { return u.id >= 0 && made_.program.at(u.id).tier == Tier::nvme; };
  const bool reads_far = is_far({gradient});
  const bool streams = reads_far || std::any_of(updated.begin(), updated.end(), is_far);
  const std::int64_t count = made_.program.at(gradient).type.shape.elements();
  const std::int64_t planned = made_.planned_elements(parameter);
  for (std::int64_t begin = 0; begin < planned; begin += streams ? kPiece : planned) {
    const std::int64_t room = streams ? std::min(kPiece, planned - begin) : planned;
    const std::int64_t size = std::clamp<std::int64_t>(count - begin, 0, room);
    Piece piece;
    std::vector<int> outputs;
    outputs.reserve(updated.size());
    for (const Updated& u : updated) {
      if (u.id < 0 || !streams) {
        outputs.push_back(u.id);
      } else {
        const std::int64_t first = begin / u.covered, elements = divide_up(size, u.covered);
        outputs.push_back(is_far(u) ? stage(u.id, first, elements, divide_up(room, u.covered), piece)
                                    : made_.view(u.id, std::min(first, elements_of(u.id)), elements));
      }
    }
    piece.changed = piece.far.size();
    int of_gradient = gradient;
    if (reads_far) {
      of_gradient = stage(gradient, begin, size, room, piece);
    } else if (streams) {
      of_gradient = made_.view(gradient, std::min(begin, count), size);
    }
    if (!piece.far.empty()) {
      fetch(piece);
      finish_updates(ahead_ - staged_bytes(piece));
    }
    std::vector<int> inputs = {of_gradient};
    if (factor >= 0) inputs.push_back(factor);
    pending_.push_back({operation, std::move(piece), std::move(inputs), std::move(outputs), attributes});
  }
}

void UpdateOfPieces::finish() {
  finish_updates(-1);
  wait_for_store();
}

std::int64_t UpdateOfPieces::elements_of(int id) const { return made_.program.at(id).type.shape.elements(); }

/// Room in host memory for elements of `id`, in whole pages; returns a view of `size` of them.
int UpdateOfPieces::stage(int id, std::int64_t begin, std::int64_t size, std::int64_t room, Piece& piece) {
  const std::int64_t moved = transfer_elements(room, dtype_bytes(made_.program.at(id).type.dtype));
  piece.far.push_back(made_.view(id, begin, moved));
  const Buffer& far = made_.program.at(piece.far.back());
  piece.near.push_back(made_.program.add({.label = far.label + " staged",
                                          .type = {far.type.dtype, {moved}},
                                          .buffer_class = BufferClass::workspace,
                                          .tier = Tier::host}));
  return moved == size ? piece.near.back() : made_.view(piece.near.back(), 0, size);
}

void UpdateOfPieces::fetch(const Piece& piece) {
  auto& start = made_.append("transfer", Queue::transfer);
  start.inputs = piece.far;
  start.outputs = piece.near;
}

std::int64_t UpdateOfPieces::staged_bytes(const Piece& piece) const {
  std::int64_t bytes = 0;
  for (const int id : piece.near) bytes += made_.program.at(id).bytes();
  return bytes;
}

void UpdateOfPieces::finish_updates(std::int64_t most) {
  std::int64_t staged = 0;
  for (const Pending& pending : pending_) staged += staged_bytes(pending.piece);
  auto next = pending_.begin();
  for (; next != pending_.end() && staged > most; ++next) {
    staged -= staged_bytes(next->piece);
    finish_update(*next);
  }
  pending_.erase(pending_.begin(), next);
}

void UpdateOfPieces::finish_update(const Pending& now) {
  if (!now.piece.near.empty()) made_.append("wait", Queue::compute).inputs = now.piece.near;
  append_instruction(made_.program, find_operation(now.operation), now.inputs, now.attributes, now.outputs, 0,
                     Phase::update);
  if (now.piece.changed == 0) return;
  const auto first = [&](const std::vector<int>& ids) {
    return std::vector<int>(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(now.piece.changed));
  };
  auto& store = made_.append("transfer", Queue::transfer);
  store.inputs = first(now.piece.near);
  store.outputs = first(now.piece.far);
  wait_for_store();
  stored_ = first(now.piece.near);
}

void UpdateOfPieces::wait_for_store() {
  if (!stored_.empty()) made_.append("wait", Queue::compute).inputs = std::exchange(stored_, {});
}

}  // namespace heddle
