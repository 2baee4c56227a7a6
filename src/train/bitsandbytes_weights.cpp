#include "train/bitsandbytes_weights.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "models/model.h"
#include "models/module_list.h"
#include "quantize/bitsandbytes.h"
#include "train/bitsandbytes_state.h"

namespace heddle {
namespace {

/// Calls copy(offset, target) for what of [begin, begin + bytes) of a tensor falls into `target`, which lies at
/// `offset` of it.
template <typename Copy>
void copy_overlap(std::uint64_t begin, std::uint64_t bytes, std::uint64_t offset, std::span<std::byte> target,
                  Copy copy) {
  const std::uint64_t first = std::max(begin, offset), last = std::min(begin + bytes, offset + target.size());
  if (first < last) copy(first - begin, target.subspan(first - offset, last - first));
}

std::string read_text(const WeightFiles& files, const StoredTensor& tensor) {
  constexpr std::uint64_t kMostBytes = 1 << 16;
  if (tensor.bytes() > kMostBytes) fail("{}: tensor {} is no text of a quant_state", tensor.file, tensor.name);
  std::string text(tensor.bytes(), '\0');
  files.read(tensor, 0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace

BitsandbytesWeights::BitsandbytesWeights(std::unique_ptr<WeightFiles> files) : files_(std::move(files)) {
  std::set<std::string> hidden;
  for (const StoredTensor* tensor : files_->tensors()) {
    const std::size_t mark = tensor->name.rfind(kQuantStateMark);
    if (mark == std::string::npos) continue;
    const std::string name = tensor->name.substr(0, mark);
    if (packed_.contains(name)) fail("{}: tensor {} is a second quant_state", tensor->file, tensor->name);
    packed_.emplace(name, pack(name, *tensor, hidden));
  }
  for (const StoredTensor* tensor : files_->tensors()) {
    if (!hidden.contains(tensor->name)) shown_.push_back(find(tensor->name));
  }
  for (const auto& [name, file] : files_->weight_map()) {
    if (!hidden.contains(name)) weight_map_.emplace(name, file);
  }
}

BitsandbytesWeights::Packed BitsandbytesWeights::pack(const std::string& name, const StoredTensor& state_text,
                                                      std::set<std::string>& hidden) const {
  const std::string where = state_text.file + ": tensor " + state_text.name;
  const BitsandbytesState state = parse_quant_state(read_text(*files_, state_text), where);
  hidden.insert(state_text.name);
  Packed packed;
  for (const BitsandbytesSource& source : bitsandbytes_sources(state, where)) {
    const std::string part = name + std::string(source.suffix);
    const StoredTensor* stored = files_->find(part);
    if (stored == nullptr) fail("{}: tensor {} is missing; {} asks for it", state_text.file, part, state_text.name);
    if (stored->bytes() != static_cast<std::uint64_t>(source.bytes)) {
      fail("{}: tensor {} has {} bytes; {} asks for {}", stored->file, part, stored->bytes(), state_text.name,
           source.bytes);
    }
    if (!source.suffix.empty()) hidden.insert(part);
    if (source.target >= 0) {
      packed.parts.push_back({static_cast<std::uint64_t>(source.target), stored});
      continue;
    }
    std::vector<std::byte> table(stored->bytes());
    files_->read(*stored, 0, table);
    check_bitsandbytes_table(state, source.suffix, table, stored->file + ": tensor " + name);
  }
  const StoredTensor& codes = *packed.parts.front().stored;
  packed.shown = {name, state.dtype(), state.shape, 0, 0, codes.file};
  packed.shown.end = static_cast<std::uint64_t>(storage_bytes(state.dtype(), state.elements()));
  if (state.nested) {
    const auto mean = static_cast<float>(state.nested_offset);
    packed.mean_begin = static_cast<std::uint64_t>(FourBitLayout(state.dtype(), state.elements()).mean);
    packed.mean.resize(sizeof(mean));
    std::memcpy(packed.mean.data(), &mean, sizeof(mean));
  }
  return packed;
}

std::vector<const StoredTensor*> BitsandbytesWeights::tensors() const { return shown_; }

const StoredTensor* BitsandbytesWeights::find(const std::string& name) const {
  const auto found = packed_.find(name);
  return found == packed_.end() ? files_->find(name) : &found->second.shown;
}

void BitsandbytesWeights::read(const StoredTensor& tensor, std::uint64_t offset, std::span<std::byte> target) const {
  const auto found = packed_.find(tensor.name);
  if (found == packed_.end()) return files_->read(tensor, offset, target);
  std::fill(target.begin(), target.end(), std::byte{0});  // what lies between the parts
  for (const Part& part : found->second.parts) {
    copy_overlap(part.begin, part.stored->bytes(), offset, target,
                 [&](std::uint64_t from, std::span<std::byte> to) { files_->read(*part.stored, from, to); });
  }
  const std::vector<std::byte>& mean = found->second.mean;
  copy_overlap(found->second.mean_begin, mean.size(), offset, target, [&](std::uint64_t from, std::span<std::byte> to) {
    std::copy_n(mean.begin() + static_cast<std::ptrdiff_t>(from), to.size(), to.begin());
  });
}

std::unique_ptr<WeightFiles> open_bitsandbytes_folder(const std::filesystem::path& folder, const ModelConfig& model) {
  ModuleList modules;
  emit_model(modules, model);
  if (modules.is_transposed) {
    fail("{}: linear layers of {} lie transposed in folders of bitsandbytes; expected a folder that is not quantized",
         folder.string(), model.model_type);
  }
  return std::make_unique<BitsandbytesWeights>(std::make_unique<WeightFolder>(folder));
}

}  // namespace heddle
