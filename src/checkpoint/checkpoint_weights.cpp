#include "checkpoint/checkpoint_weights.h"

#include <string_view>
#include <utility>

#include "base/error.h"

namespace heddle {
namespace {

constexpr std::string_view kWeights = "weights/";

}  // namespace

CheckpointWeights::CheckpointWeights(Checkpoint checkpoint, const Names& names, const std::string& file)
    : checkpoint_(std::move(checkpoint)) {
  for (const auto& [logical, saved] : checkpoint_.tensors()) {
    if (!logical.starts_with(kWeights)) continue;
    StoredTensor tensor;
    tensor.name = logical.substr(kWeights.size());
    if (const auto other = names.find(tensor.name); other != names.end()) tensor.name = other->second;
    tensor.dtype = saved.dtype;
    tensor.shape = saved.shape;
    tensor.end = static_cast<std::uint64_t>(saved.elements()) * dtype_bytes(saved.dtype);
    tensor.file = (checkpoint_.folder() / file).string();
    tensors_.emplace(tensor.name, Saved{tensor, logical});
  }
}

std::vector<const StoredTensor*> CheckpointWeights::tensors() const {
  std::vector<const StoredTensor*> all;
  all.reserve(tensors_.size());
  for (const auto& [name, saved] : tensors_) all.push_back(&saved.tensor);
  return all;
}

const StoredTensor* CheckpointWeights::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second.tensor;
}

void CheckpointWeights::read(const StoredTensor& tensor, std::uint64_t offset, std::span<std::byte> target) const {
  const std::size_t size = dtype_bytes(tensor.dtype);
  HEDDLE_CHECK(offset % size == 0 && target.size() % size == 0);
  const auto begin = static_cast<std::int64_t>(offset / size);
  const auto count = static_cast<std::int64_t>(target.size() / size);
  checkpoint_.read(tensors_.at(tensor.name).logical, begin, begin + count, tensor.dtype, target);
}

}  // namespace heddle
