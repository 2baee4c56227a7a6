#include "checkpoint/checkpoint_weights.h"

#include <string_view>
#include <utility>

#include "base/error.h"

namespace heddle {
namespace {

constexpr std::string_view kWeights = "weights/";

}  // namespace

CheckpointWeights::CheckpointWeights(Checkpoint checkpoint) : checkpoint_(std::move(checkpoint)) {
  for (const auto& [logical, saved] : checkpoint_.tensors()) {
    if (!logical.starts_with(kWeights)) continue;
    StoredTensor tensor;
    tensor.name = logical.substr(kWeights.size());
    tensor.dtype = saved.dtype;
    tensor.shape = saved.shape;
    tensor.end = static_cast<std::uint64_t>(saved.elements()) * dtype_bytes(saved.dtype);
    tensor.file = (checkpoint_.folder() / "model.safetensors").string();  // what an export of it would write
    tensors_.emplace(tensor.name, std::move(tensor));
  }
}

std::vector<const StoredTensor*> CheckpointWeights::tensors() const {
  std::vector<const StoredTensor*> all;
  all.reserve(tensors_.size());
  for (const auto& [name, tensor] : tensors_) all.push_back(&tensor);
  return all;
}

const StoredTensor* CheckpointWeights::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

void CheckpointWeights::read(const StoredTensor& tensor, std::uint64_t offset, std::span<std::byte> target) const {
  const std::size_t size = dtype_bytes(tensor.dtype);
  HEDDLE_CHECK(offset % size == 0 && target.size() % size == 0);
  const auto begin = static_cast<std::int64_t>(offset / size);
  const auto count = static_cast<std::int64_t>(target.size() / size);
  checkpoint_.read(std::string(kWeights) + tensor.name, begin, begin + count, tensor.dtype, target);
}

}  // namespace heddle
