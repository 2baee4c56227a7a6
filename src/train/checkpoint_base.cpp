#include "train/checkpoint_base.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "checkpoint/checked_file.h"
#include "formats/files.h"
#include "formats/json_reader.h"
#include "train/overlaid_weights.h"
#include "train/run_setup.h"
#include "train/vocabulary.h"

namespace heddle {
namespace {

JsonReader state_of(const Checkpoint& checkpoint) {
  return {checkpoint.state(), (checkpoint.folder() / "manifest.json").string()};
}

}  // namespace

std::string weights_digest(const WeightFiles& files) {
  std::string facts;
  std::vector<std::byte> sample;
  for (const StoredTensor* tensor : files.tensors()) {
    facts += fmt::format("{} {} [{}] ", tensor->name, safetensors_name(tensor->dtype), fmt::join(tensor->shape, ","));
    sample.resize(std::min<std::uint64_t>(64, tensor->bytes()));
    files.read(*tensor, (tensor->bytes() - sample.size()) / 2 / 8 * 8, sample);
    facts.append(reinterpret_cast<const char*>(sample.data()), sample.size());
  }
  return checksum_text(checksum_of(std::as_bytes(std::span(facts))));
}

std::unique_ptr<WeightFiles> open_base(const Checkpoint& checkpoint, Communicator& communicator) {
  const JsonReader state = state_of(checkpoint);
  const std::string path = state.text_or("base_model", "");
  if (path.empty()) return nullptr;
  if (!std::filesystem::exists(path)) {
    fail("{}: has only what was trained; its base model {} is not there", checkpoint.folder().string(), path);
  }
  ModelSource model = open_model(path);
  const auto config = checkpoint.folder() / "config.json";
  if (std::filesystem::exists(config)) {
    resize_vocabulary(model, parse_model_config(read_text_file(config), config.string()).vocab_size);
  }
  auto base = open_weights(model, communicator);
  if (weights_digest(*base) != state.text("base")) {
    fail("{}: has only what was trained; its base model {} is another now", checkpoint.folder().string(), path);
  }
  return base;
}

WeightSource export_source(const Checkpoint& checkpoint) {
  const JsonReader document = state_of(checkpoint).object("export");
  WeightSource source;
  source.is_sharded = document.boolean_or("is_sharded", false);
  for (const auto& value : document.value().at("weights")) {
    const JsonReader entry(value, document.file());
    source.entries.push_back(
        {entry.text("parameter"), entry.text("name"), dtype_from_safetensors(entry.text("dtype")), entry.text("file")});
  }
  return source;
}

std::unique_ptr<WeightFiles> open_checkpoint_weights(Checkpoint checkpoint, Communicator& communicator) {
  auto base = open_base(checkpoint, communicator);
  if (base == nullptr) return std::make_unique<CheckpointWeights>(std::move(checkpoint));
  const WeightSource source = export_source(checkpoint);
  const WeightFiles& files = *base;
  auto own = std::make_unique<CheckpointWeights>(std::move(checkpoint));
  std::vector<std::pair<std::string, const StoredTensor*>> frozen;
  for (const auto& entry : source.entries) {
    if (own->find(entry.parameter) != nullptr) continue;
    const StoredTensor* stored = files.find(entry.name);
    if (stored == nullptr) fail("{}: has no tensor {}, which the checkpoint leaves out", "the base model", entry.name);
    frozen.emplace_back(entry.parameter, stored);
  }
  auto both = std::make_unique<OverlaidWeights>(std::move(own), std::move(base));
  for (const auto& [name, stored] : frozen) both->add(name, *stored);
  return both;
}

}  // namespace heddle
