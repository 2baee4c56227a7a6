#include "train/adapter_weights.h"

#include <map>
#include <string>
#include <utility>

#include "checkpoint/checkpoint_weights.h"
#include "checkpoint/save.h"
#include "comm/job.h"
#include "train/checkpoint_base.h"

namespace heddle {
namespace {

constexpr const char* kFile = "adapter_model.safetensors";

class AdapterFile final : public WeightFiles {
 public:
  explicit AdapterFile(const std::filesystem::path& path) : file_(path) {}
  std::vector<const StoredTensor*> tensors() const override {
    std::vector<const StoredTensor*> all;
    for (const auto& tensor : file_.tensors()) all.push_back(&tensor);
    return all;
  }
  const StoredTensor* find(const std::string& name) const override { return file_.find(name); }
  void read(const StoredTensor& tensor, std::uint64_t offset, std::span<std::byte> target) const override {
    file_.read(tensor, offset, target);
  }
  const std::map<std::string, std::string>& weight_map() const override { return none_; }

 private:
  SafetensorsFile file_;
  std::map<std::string, std::string> none_;
};

}  // namespace

std::unique_ptr<WeightFiles> open_adapter_weights(const std::filesystem::path& folder) {
  if (!is_checkpoint(folder)) return std::make_unique<AdapterFile>(folder / kFile);
  Checkpoint checkpoint = open_checkpoint(folder, *alone());
  CheckpointWeights::Names names;  // the first of a weight that is saved twice
  for (const auto& entry : export_source(checkpoint).entries) names.emplace(entry.parameter, entry.name);
  return std::make_unique<CheckpointWeights>(std::move(checkpoint), names, kFile);
}

}  // namespace heddle
