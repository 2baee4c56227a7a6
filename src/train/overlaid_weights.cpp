#include "train/overlaid_weights.h"

namespace heddle {

OverlaidWeights::OverlaidWeights(std::unique_ptr<WeightFiles> own, std::unique_ptr<WeightFiles> others)
    : own_(std::move(own)), others_(std::move(others)) {}

void OverlaidWeights::add(const std::string& name, const StoredTensor& tensor) {
  StoredTensor renamed = tensor;
  renamed.name = name;
  // An export has it among the own ones: in the file of the last, or in the only one.
  if (others_ != nullptr) renamed.file = "model.safetensors";
  added_.insert_or_assign(name, std::pair(std::move(renamed), &tensor));
}

std::vector<const StoredTensor*> OverlaidWeights::tensors() const {
  std::vector<const StoredTensor*> all;
  for (const StoredTensor* tensor : own_->tensors()) {
    if (!added_.contains(tensor->name)) all.push_back(tensor);
  }
  for (const auto& [name, tensor] : added_) all.push_back(&tensor.first);
  return all;
}

const StoredTensor* OverlaidWeights::find(const std::string& name) const {
  const auto found = added_.find(name);
  return found == added_.end() ? own_->find(name) : &found->second.first;
}

void OverlaidWeights::read(const StoredTensor& tensor, std::uint64_t offset, std::span<std::byte> target) const {
  const auto found = added_.find(tensor.name);
  if (found == added_.end()) return own_->read(tensor, offset, target);
  (others_ == nullptr ? *own_ : *others_).read(*found->second.second, offset, target);
}

}  // namespace heddle
