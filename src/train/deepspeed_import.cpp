#include "train/deepspeed_import.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/save.h"
#include "comm/job.h"
#include "train/checkpoint_export.h"
#include "train/model_folder.h"
#include "train/training_state.h"
#include "train/weights.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

/// By OptimizerPart: what it is called in a checkpoint.
constexpr std::array<const char*, 3> kKinds = {"weights", "exp_avg", "exp_avg_sq"};

/// Addresses without memory, which stand for bytes that lie elsewhere.
class Addresses {
 public:
  explicit Addresses(std::size_t bytes) : bytes_(bytes) {
    void* const begin = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (begin == MAP_FAILED) fail("{} bytes of addresses cannot be had", bytes_);
    begin_ = static_cast<const std::byte*>(begin);
  }
  ~Addresses() { munmap(const_cast<std::byte*>(begin_), bytes_); }
  Addresses(const Addresses&) = delete;
  Addresses& operator=(const Addresses&) = delete;

  std::span<const std::byte> all() const { return {begin_, bytes_}; }
  bool hold(std::span<const std::byte> bytes) const { return begin_ <= bytes.data() && bytes.data() < begin_ + bytes_; }

 private:
  const std::byte* begin_ = nullptr;
  std::size_t bytes_;
};

/// Its weights by the names that it gives them: those that match_weights looks for. Nothing is read through it.
class Names final : public WeightFiles {
 public:
  explicit Names(const DeepSpeedCheckpoint& source) {
    for (const auto& tensor : source.tensors()) {
      const std::string file = (source.folder() / "model.safetensors").string();
      stored_.emplace(tensor.name, StoredTensor{tensor.name, tensor.dtype, tensor.shape, 0, 0, file});
    }
  }
  std::vector<const StoredTensor*> tensors() const override {
    std::vector<const StoredTensor*> all;
    for (const auto& [name, tensor] : stored_) all.push_back(&tensor);
    return all;
  }
  const StoredTensor* find(const std::string& name) const override {
    const auto found = stored_.find(name);
    return found == stored_.end() ? nullptr : &found->second;
  }
  void read(const StoredTensor& tensor, std::uint64_t, std::span<std::byte>) const override {
    fail("internal: {} is read as a weight", tensor.name);
  }
  const std::map<std::string, std::string>& weight_map() const override { return none_; }

 private:
  std::map<std::string, StoredTensor> stored_;
  std::map<std::string, std::string> none_;
};

/// The pieces of a checkpoint, which are read from the source while they are saved.
class ImportedPieces {
 public:
  ImportedPieces(const DeepSpeedCheckpoint& source, const WeightSource& weights)
      : source_(source), addresses_(place(weights)) {
    for (std::size_t i = 0; i < pieces_.size(); ++i)
      pieces_[i].bytes = addresses_.all().subspan(origins_[i].offset, bytes_of(pieces_[i]));
  }
  const std::vector<CheckpointPiece>& list() const { return pieces_; }
  std::size_t weights() const { return weights_; }

  ReadMemory reader() const {
    return [this](std::span<const std::byte> from, std::span<std::byte> to) {
      if (!addresses_.hold(from)) return copy_memory(from, to);
      const auto at = static_cast<std::size_t>(from.data() - addresses_.all().data());
      const auto next = std::partition_point(origins_.begin(), origins_.end(),
                                             [&](const Origin& origin) { return origin.offset <= at; });
      const Origin& origin = *std::prev(next);
      const std::size_t offset = at - origin.offset;
      HEDDLE_CHECK(offset % sizeof(float) == 0);  // saving cuts between elements
      source_.read(origin.tensor, origin.part, static_cast<std::int64_t>(offset / sizeof(float)), to);
    };
  }

 private:
  struct Origin {
    std::size_t offset;  // of the piece among the bytes of all
    std::size_t tensor;  // of the source
    OptimizerPart part;
  };

  static std::size_t bytes_of(const CheckpointPiece& piece) {
    return static_cast<std::size_t>(piece.end) * sizeof(float);
  }

  /// Adds the pieces; returns their bytes.
  std::size_t place(const WeightSource& weights) {
    std::map<std::string, std::size_t> numbers;
    for (std::size_t i = 0; i < source_.tensors().size(); ++i) numbers.emplace(source_.tensors()[i].name, i);
    std::size_t bytes = 0;
    for (const auto& entry : weights.entries) {
      const std::size_t number = numbers.at(entry.name);
      const auto& tensor = source_.tensors()[number];
      if (!tensor.is_trained)
        fail("{}: {} has no moments: it was frozen, or is another's second name; --format hf takes the weights alone",
             source_.folder().string(), entry.name);
      for (const auto part : {OptimizerPart::fp32, OptimizerPart::exp_avg, OptimizerPart::exp_avg_sq}) {
        if (!source_.has(part)) continue;
        std::int64_t elements = 1;
        for (const auto extent : tensor.shape) elements *= extent;
        std::string name = fmt::format("{}/{}", kKinds[static_cast<std::size_t>(part)], entry.parameter);
        pieces_.push_back({std::move(name), DType::f32, tensor.shape, 0, elements, {}});
        origins_.push_back({bytes, number, part});
        bytes += bytes_of(pieces_.back());
      }
    }
    weights_ = weights.entries.size();
    return bytes;
  }

  const DeepSpeedCheckpoint& source_;
  std::vector<CheckpointPiece> pieces_;
  std::vector<Origin> origins_;  // of the pieces
  std::size_t weights_ = 0;
  Addresses addresses_;
};

/// `where` names the source.
TrainingState state_of(const DeepSpeedProgress& progress, const std::string& where) {
  TrainingState state;
  state.step = progress.steps;
  state.updates = progress.steps - progress.skipped;
  if (progress.updates && *progress.updates != state.updates) {
    fail(
        "{}: its optimizer has made {} updates, its run {}: here one number stands for both; --format hf takes the "
        "weights alone",
        where, *progress.updates, state.updates);
  }
  if (const auto& scale = progress.loss_scale) {
    // DeepSpeed raises the scale one step later than its window says.
    state.loss_scaler = {.scale = scale->scale,
                         .steps_without_overflow = std::max<std::int64_t>(scale->iterations_since_overflow - 1, 0),
                         .hysteresis_left = scale->hysteresis_left};
  }
  return state;
}

}  // namespace

fs::path import_deepspeed_checkpoint(const DeepSpeedCheckpoint& source, const ModelSource& model,
                                     const fs::path& output_dir) {
  const std::string where = source.folder().string();
  if (!source.has(OptimizerPart::exp_avg))
    fail("{}: its optimizer has no exp_avg; AdamW and Lion have. --format hf takes the weights alone", where);
  const CompiledRun compiled = compile_evaluation(model.config, WeightRules(), DType::f32, {1, 1}, 1, 1);
  const WeightSource weights = match_weights(Names(source), compiled.parameters, model.config);
  const DeepSpeedProgress progress = source.progress();
  const TrainingState state = state_of(progress, where);
  const ImportedPieces pieces(source, weights);
  for (const auto part : {OptimizerPart::fp32, OptimizerPart::exp_avg, OptimizerPart::exp_avg_sq}) {
    if (source.has(part)) source.verify(part);
  }
  Json document = state_document(state, progress.samples);
  document["export"] = export_document(weights, std::nullopt);
  document["base"] = "";
  const auto group = alone();
  CheckpointSave save(output_dir, state.step, pieces.list(), std::move(document), model_files(model, "", std::nullopt),
                      *group, SavedMemory{.read = pieces.reader()});
  save.write();
  fs::path folder = save.commit();
  note("{} weights, their moments and {} updates in {} steps are in {}{}", pieces.weights(), state.updates, state.step,
       folder.string(), state.loss_scaler ? fmt::format(", and the loss scale {:g}", state.loss_scaler->scale) : "");
  note("not taken over: random streams (dropout begins anew) and the order of the rows ({} are used)",
       progress.samples);
  return folder;
}

}  // namespace heddle
