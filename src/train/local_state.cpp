#include "train/local_state.h"

#include "base/error.h"

namespace heddle {
namespace {

/// The elements [begin, end) of a tensor in a buffer that holds those from `first` on.
LocalTensor elements_of(const TensorView& buffer, std::int64_t first, std::int64_t begin, std::int64_t end) {
  HEDDLE_CHECK(first <= begin && end - first <= buffer.elements());
  auto* const data =
      static_cast<std::byte*>(buffer.data) + static_cast<std::size_t>(begin - first) * dtype_bytes(buffer.dtype);
  return {{data, buffer.dtype, {end - begin}}, begin, end};
}

struct Range {
  std::int64_t begin, end;
};

/// What a rank holds of a tensor that is sharded, or not.
Range held_range(std::int64_t elements, bool is_sharded, const Sharding& sharding) {
  if (!is_sharded) return {0, elements};
  const Partition partition = sharding.partition(elements);
  return {partition.begin(sharding.rank), partition.end(sharding.rank)};
}

LocalTensor held(const Executor& executor, const std::string& label, std::int64_t elements, bool is_sharded,
                 const Sharding& sharding) {
  const Range range = held_range(elements, is_sharded, sharding);
  return elements_of(executor.persistent(label), range.begin, range.begin, range.end);
}

/// Of what a rank holds, the part that no other rank answers for.
LocalTensor owned(const Executor& executor, const std::string& label, std::int64_t elements, bool is_sharded,
                  const Sharding& sharding) {
  const Range all = held_range(elements, is_sharded, sharding), mine = held_range(elements, true, sharding);
  return elements_of(executor.persistent(label), all.begin, mine.begin, mine.end);
}

/// What a rank holds, and what of it no other rank answers for, of an optimizer state. Elements that cover several of
/// the parameter's lie where these do: pieces are whole blocks.
struct HeldState {
  LocalTensor held, owned;
};

HeldState held_state(const Executor& executor, const Parameter& parameter, const OptimizerState& state,
                     const Sharding& sharding) {
  const std::string label = state_label(parameter.name, state.name);
  if (state.covered == 0) {
    const std::int64_t elements = state.shape.elements();
    return {held(executor, label, elements, false, sharding), owned(executor, label, elements, false, sharding)};
  }
  const auto covering = [&](const Range& range) {
    const auto up = [&](std::int64_t element) { return (element + state.covered - 1) / state.covered; };
    return Range{up(range.begin), up(range.end)};
  };
  const std::int64_t elements = parameter.shape.elements();
  const Range all = covering(held_range(elements, sharding.shards_optimizer(), sharding));
  const Range mine = covering(held_range(elements, true, sharding));
  const TensorView buffer = executor.persistent(label);
  return {elements_of(buffer, all.begin, all.begin, all.end), elements_of(buffer, all.begin, mine.begin, mine.end)};
}

}  // namespace

std::span<std::byte> bytes_of(const TensorView& view) {
  return {view.as<std::byte>(), static_cast<std::size_t>(view.elements()) * dtype_bytes(view.dtype)};
}

LocalTensor local_weight(const Executor& executor, const Parameter& parameter, const Sharding& sharding) {
  const std::int64_t elements = parameter.held_elements();
  return held(executor, parameter.name, elements, sharding.shards_weight(elements), sharding);
}

LocalTensor owned_master(const Executor& executor, const Parameter& parameter, const Sharding& sharding) {
  const std::int64_t elements = parameter.shape.elements();
  const std::string master = master_label(parameter.name);
  if (executor.has_persistent(master)) return owned(executor, master, elements, sharding.shards_optimizer(), sharding);
  return owned(executor, parameter.name, elements, sharding.shards_weight(elements), sharding);
}

std::vector<LocalTensor> loaded_tensors(const Executor& executor, const Parameter& parameter,
                                        const Sharding& sharding) {
  std::vector<LocalTensor> tensors = {local_weight(executor, parameter, sharding)};
  const std::string master = master_label(parameter.name);
  if (executor.has_persistent(master)) {
    tensors.push_back(held(executor, master, parameter.shape.elements(), sharding.shards_optimizer(), sharding));
  }
  return tensors;
}

std::string saved_name(const OptimizerState& state, const Parameter& parameter) {
  return std::string(state.name) + "/" + parameter.name;
}

std::vector<StateTensor> state_tensors(const Executor& executor, const Parameters& parameters,
                                       const Sharding& sharding) {
  std::vector<StateTensor> tensors;
  for (const auto& parameter : parameters.list) {
    if (!parameter.is_trainable) continue;
    tensors.push_back({"weights/" + parameter.name, parameter.shape, owned_master(executor, parameter, sharding),
                       loaded_tensors(executor, parameter, sharding)});
    for (const auto& state : optimizer_states(parameters.optimizer, parameter)) {
      const HeldState part = held_state(executor, parameter, state, sharding);
      tensors.push_back({saved_name(state, parameter), state.shape, part.owned, {part.held}});
    }
  }
  return tensors;
}

}  // namespace heddle
