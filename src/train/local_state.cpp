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

}  // namespace

LocalTensor local_weight(const Executor& executor, const Parameter& parameter, const Sharding& sharding) {
  const std::int64_t elements = parameter.shape.elements();
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

std::vector<StateTensor> state_tensors(const Executor& executor, const Parameters& parameters,
                                       const Sharding& sharding) {
  std::vector<StateTensor> tensors;
  for (const auto& parameter : parameters.list) {
    tensors.push_back({"weights/" + parameter.name, &parameter, owned_master(executor, parameter, sharding),
                       loaded_tensors(executor, parameter, sharding)});
    if (!parameter.is_trainable) continue;
    const std::int64_t elements = parameter.shape.elements();
    for (const auto& [kind, label] : {std::pair{"exp_avg/", exp_avg_label(parameter.name)},
                                      std::pair{"exp_avg_sq/", exp_avg_sq_label(parameter.name)}}) {
      tensors.push_back({kind + parameter.name,
                         &parameter,
                         owned(executor, label, elements, sharding.shards_optimizer(), sharding),
                         {held(executor, label, elements, sharding.shards_optimizer(), sharding)}});
    }
  }
  return tensors;
}

}  // namespace heddle
