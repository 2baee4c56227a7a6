#include "formats/deepspeed_checkpoint.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "formats/json.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kPiece = std::int64_t{1} << 18;  // elements

std::size_t index_of(OptimizerPart part) { return static_cast<std::size_t>(part); }

/// The product fits: it was checked when the shape was read, or against a file.
std::int64_t elements_of(const std::vector<std::int64_t>& shape) {
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) product *= extent;
  return product;
}

std::string shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

DType imported_type(DType type) { return is_floating(type) ? DType::f32 : type; }

std::int64_t round_up(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }

/// Tensors of one or more files, end to end.
template <typename Run>
class Flat {
 public:
  void append(const TorchPickle& file, const TorchTensor& tensor) {
    parts_.push_back({&file, &tensor, elements_});
    elements_ += tensor.elements();
  }
  std::int64_t elements() const { return elements_; }
  /// Adds what [begin, begin + count) is made of.
  void add_runs(std::int64_t begin, std::int64_t count, std::vector<Run>& runs) const {
    for (const auto& part : parts_) {
      const std::int64_t from = std::max(begin, part.begin);
      const std::int64_t to = std::min(begin + count, part.begin + part.tensor->elements());
      if (from < to) runs.push_back({part.file, *part.tensor, from - part.begin, to - from});
    }
  }

 private:
  struct Part {
    const TorchPickle* file;
    const TorchTensor* tensor;
    std::int64_t begin;
  };
  std::vector<Part> parts_;
  std::int64_t elements_ = 0;
};

void require_same_shapes(const DeepSpeedModelState& first, const DeepSpeedModelState& other) {
  const auto compare = [&](const std::vector<NamedShape>& a, const std::vector<NamedShape>& b, const char* what) {
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      if (a[i] == b[i]) continue;
      fail("{}: {} has {} {} where {} has {} {}", other.file.path(), what, text_excerpt(b[i].first),
           shape_text(b[i].second), first.file.path(), text_excerpt(a[i].first), shape_text(a[i].second));
    }
    if (a.size() != b.size())
      fail("{}: {} has {} entries; {} has {}", other.file.path(), what, b.size(), first.file.path(), a.size());
  };
  if (first.param_shapes.size() != other.param_shapes.size())
    fail("{}: param_shapes has {} groups; {} has {}", other.file.path(), other.param_shapes.size(), first.file.path(),
         first.param_shapes.size());
  for (std::size_t group = 0; group < first.param_shapes.size(); ++group)
    compare(first.param_shapes[group], other.param_shapes[group], "param_shapes");
  compare(first.frozen_param_shapes, other.frozen_param_shapes, "frozen_param_shapes");
}

void require_same_run(const DeepSpeedOptimizerState& first, const DeepSpeedOptimizerState& other) {
  const auto differ = [&](const char* what, std::int64_t a, std::int64_t b) {
    if (a != b) fail("{}: {} is {}; that of {} is {}", other.file.path(), what, b, first.file.path(), a);
  };
  differ("zero_stage", first.stage, other.stage);
  differ("partition_count", first.partition_count, other.partition_count);
  for (std::size_t part = 0; part < first.groups.size(); ++part) {
    const auto &a = first.groups[part], &b = other.groups[part];
    differ("the number of parameter groups", static_cast<std::int64_t>(a.size()), static_cast<std::int64_t>(b.size()));
    // Stages 1 and 2 may leave out the padding at the end of the last rank.
    for (std::size_t group = 0; group < a.size() && first.stage == 3; ++group)
      differ("the size of a parameter group", a[group].elements(), b[group].elements());
  }
}

/// The tensor of a universal checkpoint's file: alone, or a dictionary's "param".
TorchTensor universal_tensor(const TorchPickle& file, const std::string& name) {
  const Pickle::Object* param = file.pickle().find(file.pickle().root(), "param");
  return file.tensor(param != nullptr ? *param : file.pickle().root(), name);
}

fs::path universal_file(const fs::path& folder, OptimizerPart part) {
  return folder / fmt::format("{}.pt", kOptimizerPartNames[index_of(part)]);
}

void read_run(const TorchPickle& file, const TorchTensor& tensor, std::int64_t begin, std::int64_t count,
              const std::function<void(std::span<const std::byte>)>& use) {
  std::vector<std::byte> converted;
  const auto convert_and_use = [&](std::span<const std::byte> bytes) {
    if (imported_type(tensor.dtype) == tensor.dtype) return use(bytes);
    const std::size_t elements = bytes.size() / dtype_bytes(tensor.dtype);
    converted.resize(elements * sizeof(float));
    convert(bytes.data(), tensor.dtype, converted.data(), DType::f32, static_cast<std::int64_t>(elements));
    use(converted);
  };
  if (!tensor.is_contiguous()) return file.read(tensor, convert_and_use);
  std::vector<std::byte> piece;
  for (std::int64_t at = 0; at < count; at += kPiece) {
    piece.resize(static_cast<std::size_t>(std::min(kPiece, count - at)) * dtype_bytes(tensor.dtype));
    file.read_contiguous(tensor, begin + at, piece);
    convert_and_use(piece);
  }
}

}  // namespace

DeepSpeedCheckpoint::DeepSpeedCheckpoint(const fs::path& folder) : files_(find_deepspeed_files(folder)) {
  for (const auto& path : files_.model_states) {
    models_.emplace_back(path);
    require_same_shapes(models_.front(), models_.back());
  }
  open_ranks();
  add_buffers();
  add_frozen();
  if (!files_.universal.empty()) {
    add_universal();
  } else if (stage_ == 3) {
    add_cut_parameters();
  } else {
    add_groups();
  }
  add_shared();
}

void DeepSpeedCheckpoint::open_ranks() {
  ranks_ = std::max(files_.model_states.size(), files_.optimizer_states.size());
  for (const auto& path : files_.optimizer_states) {
    optimizers_.emplace_back(path);
    require_same_run(optimizers_.front(), optimizers_.back());
  }
  if (optimizers_.empty()) return;
  const auto& first = optimizers_.front();
  stage_ = first.stage;
  if (first.partition_count != static_cast<std::int64_t>(optimizers_.size())) {
    fail("{}: its run had {} ranks, but {} holds the optimizer states of {}", first.file.path(), first.partition_count,
         files_.folder.string(), optimizers_.size());
  }
  if (files_.has_model_state_by_rank != (stage_ == 3)) {
    fail("{}: is of ZeRO stage {}, {} of another; one of them belongs to another run", first.file.path(), stage_,
         files_.model_states.front().filename().string());
  }
  if (stage_ == 3 && models_.size() != optimizers_.size()) {
    fail("{}: holds the model states of {} ranks and the optimizer states of {}", files_.folder.string(),
         models_.size(), optimizers_.size());
  }
  if (stage_ != 3 && models_.front().param_shapes.size() != first.groups[0].size()) {
    fail("{}: has {} parameter groups; param_shapes of {} has {}", first.file.path(), first.groups[0].size(),
         files_.model_states.front().filename().string(), models_.front().param_shapes.size());
  }
}

void DeepSpeedCheckpoint::add(Tensor tensor, Source source) {
  tensors_.push_back(std::move(tensor));
  sources_.push_back(std::move(source));
}

void DeepSpeedCheckpoint::add_buffers() {
  const auto& model = models_.front();
  for (const auto& buffer : model.buffers) {
    Source source;
    source.runs[0] = {{&model.file, buffer, 0, buffer.elements()}};
    add({buffer.name, imported_type(buffer.dtype), buffer.shape, false}, std::move(source));
  }
}

void DeepSpeedCheckpoint::add_frozen() {
  const auto count = static_cast<std::int64_t>(models_.size());
  for (const auto& [name, shape] : models_.front().frozen_param_shapes) {
    const std::int64_t elements = elements_of(shape);
    const std::int64_t each = (elements + count - 1) / count;
    Source source;
    DType dtype = DType::f32;
    for (std::int64_t rank = 0; rank < count; ++rank) {
      const auto& model = models_[static_cast<std::size_t>(rank)];
      const auto found = model.frozen_param_fragments.find(name);
      if (found == model.frozen_param_fragments.end())
        fail("{}: frozen_param_fragments has no {}", model.file.path(), text_excerpt(name));
      const TorchTensor& fragment = found->second;
      if (fragment.elements() < std::min(each, std::max<std::int64_t>(elements - rank * each, 0)))
        fail("{}: frozen parameter {} has {} elements; its shape {} over {} ranks takes {}", model.file.path(),
             text_excerpt(name), fragment.elements(), shape_text(shape), count, each);
      if (rank > 0 && imported_type(fragment.dtype) != dtype)
        fail("{}: frozen parameter {} has another type than on rank 0", model.file.path(), text_excerpt(name));
      dtype = imported_type(fragment.dtype);
      const std::int64_t used = std::clamp<std::int64_t>(elements - rank * each, 0, each);
      if (!fragment.is_contiguous() && used != fragment.elements())
        fail("{}: frozen parameter {} is a part of a view", model.file.path(), text_excerpt(name));
      if (used > 0) source.runs[0].push_back({&model.file, fragment, 0, used});
    }
    add({name, dtype, shape, false}, std::move(source));
  }
}

void DeepSpeedCheckpoint::add_groups() {
  const auto& first = optimizers_.front();
  const auto& shapes = models_.front().param_shapes;
  const auto& paddings = first.param_alignment_paddings;
  if (!paddings.empty() && paddings.size() != shapes.size())
    fail("{}: param_alignment_paddings has {} groups; expected {}", first.file.path(), paddings.size(), shapes.size());
  for (std::size_t group = 0; group < shapes.size(); ++group) {
    std::array<Flat<Run>, 3> flat;
    for (std::size_t part = 0; part < flat.size(); ++part) {
      for (const auto& optimizer : optimizers_) {
        if (group < optimizer.groups[part].size()) flat[part].append(optimizer.file, optimizer.groups[part][group]);
      }
    }
    const auto where = [&] { return fmt::format("{}: parameter group {}", files_.folder.string(), group); };
    if (!paddings.empty() && paddings[group].size() != shapes[group].size())
      fail("{} has {} paddings and {} parameters", where(), paddings[group].size(), shapes[group].size());
    const std::int64_t there = flat[0].elements();
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < shapes[group].size(); ++i) {
      const auto& [name, shape] = shapes[group][i];
      const std::int64_t elements = elements_of(shape);
      if (elements > there - offset)
        fail("{} has {} elements in all ranks together; its parameters up to {} take more", where(), there,
             text_excerpt(name));
      Source source;
      for (std::size_t part = 0; part < flat.size(); ++part) flat[part].add_runs(offset, elements, source.runs[part]);
      add({name, DType::f32, shape, true}, std::move(source));
      const std::int64_t padding = paddings.empty() ? 0 : paddings[group][i];
      offset += elements + std::min(padding, there);  // a larger one is refused below
    }
    // The ranks' parts end at multiples that grew over DeepSpeed's versions, up to this.
    const auto align = 2 * static_cast<std::int64_t>(ranks_);
    if (round_up(offset, align) != round_up(there, align))
      fail("{} has {} elements in all ranks together; its parameters take {}", where(), there, offset);
  }
}

void DeepSpeedCheckpoint::add_cut_parameters() {
  std::vector<std::array<Flat<Run>, 3>> flat(ranks_);
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    for (std::size_t part = 0; part < flat[rank].size(); ++part) {
      for (const auto& group : optimizers_[rank].groups[part]) flat[rank][part].append(optimizers_[rank].file, group);
    }
  }
  const auto count = static_cast<std::int64_t>(ranks_);
  std::int64_t offset = 0;
  for (const auto& group : models_.front().param_shapes) {
    for (const auto& [name, shape] : group) {
      const std::int64_t elements = elements_of(shape);
      const std::int64_t each = (elements + count - 1) / count;
      Source source;
      for (std::int64_t rank = 0; rank < count; ++rank) {
        const std::int64_t used = std::clamp<std::int64_t>(elements - rank * each, 0, each);
        for (std::size_t part = 0; part < source.runs.size(); ++part)
          flat[static_cast<std::size_t>(rank)][part].add_runs(offset, used, source.runs[part]);
      }
      add({name, DType::f32, shape, true}, std::move(source));
      if (each > flat[0][0].elements() - offset) {
        fail("{}: its groups have {} elements; the parameters up to {} take more", optimizers_.front().file.path(),
             flat[0][0].elements(), text_excerpt(name));
      }
      offset += each;
    }
  }
  if (offset != flat[0][0].elements()) {
    fail("{}: its groups have {} elements; the parameters over {} ranks take {}", optimizers_.front().file.path(),
         flat[0][0].elements(), ranks_, offset);
  }
}

void DeepSpeedCheckpoint::add_universal() {
  for (const auto& group : models_.front().param_shapes) {
    for (const auto& [name, shape] : group) {
      if (name.find('/') != std::string::npos || name == "." || name == "..")
        fail("{}: param_shapes has {}, which names no folder", models_.front().file.path(), text_excerpt(name));
      Source source;
      source.universal = files_.universal / name;
      const TorchPickle file = open_deepspeed_file(universal_file(source.universal, OptimizerPart::fp32));
      const TorchTensor tensor = universal_tensor(file, name);
      // Of stage 3 they lie there flat.
      const bool is_flat = tensor.shape.size() == 1 && tensor.elements() == elements_of(shape);
      if (tensor.shape != shape && !is_flat)
        fail("{}: has shape {}; param_shapes says {}", file.path(), shape_text(tensor.shape), shape_text(shape));
      add({name, imported_type(tensor.dtype), shape, true}, std::move(source));
    }
  }
}

void DeepSpeedCheckpoint::add_shared() {
  std::map<std::string, std::size_t> known;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (!known.emplace(tensors_[i].name, i).second)
      fail("{}: parameter {} is there twice", models_.front().file.path(), text_excerpt(tensors_[i].name));
  }
  for (const auto& [name, shared] : models_.front().shared_params) {
    const auto found = known.find(shared);
    if (found == known.end() || known.contains(name)) continue;  // as DeepSpeed does
    Tensor tensor = tensors_[found->second];
    tensor.name = name;
    tensor.is_trained = false;
    known.emplace(name, tensors_.size());
    add(std::move(tensor), Source(sources_[found->second]));
  }
}

const DeepSpeedCheckpoint::Runs& DeepSpeedCheckpoint::runs_of(std::size_t tensor, OptimizerPart part) const {
  const Runs& runs = sources_[tensor].runs[index_of(part)];
  std::int64_t elements = 0;
  for (const auto& run : runs) elements += run.count;
  if (elements != elements_of(tensors_[tensor].shape))
    fail("{}: holds no {} of {}", files_.folder.string(), kOptimizerPartNames[index_of(part)],
         text_excerpt(tensors_[tensor].name));
  return runs;
}

/// Calls use(runs) with what the tensor's elements are made of, in their order.
template <typename Use>
void DeepSpeedCheckpoint::with_runs(std::size_t tensor, OptimizerPart part, Use use) const {
  const auto& folder = sources_[tensor].universal;
  if (folder.empty()) return use(runs_of(tensor, part));
  const TorchPickle file = open_deepspeed_file(universal_file(folder, part));
  const TorchTensor found = universal_tensor(file, tensors_[tensor].name);
  if (found.elements() != elements_of(tensors_[tensor].shape) || !is_floating(found.dtype))
    fail("{}: has {} elements of {}; expected {} of floating-point numbers", file.path(), found.elements(),
         torch_name(found.dtype), elements_of(tensors_[tensor].shape));
  use(Runs{{&file, found, 0, found.elements()}});
}

void DeepSpeedCheckpoint::read(std::size_t tensor, OptimizerPart part,
                               const std::function<void(std::span<const std::byte>)>& use) const {
  with_runs(tensor, part, [&](const Runs& runs) {
    for (const auto& run : runs) read_run(*run.file, run.tensor, run.begin, run.count, use);
  });
}

void DeepSpeedCheckpoint::read(std::size_t tensor, OptimizerPart part, std::int64_t begin,
                               std::span<std::byte> target) const {
  const std::size_t size = dtype_bytes(tensors_[tensor].dtype);
  const std::int64_t end = begin + static_cast<std::int64_t>(target.size() / size);
  HEDDLE_CHECK(target.size() % size == 0 && end <= elements_of(tensors_[tensor].shape));
  with_runs(tensor, part, [&](const Runs& runs) {
    std::int64_t at = 0;  // of the run's first element
    for (const auto& run : runs) {
      const std::int64_t first = std::max(begin, at), last = std::min(end, at + run.count);
      if (first < last) {
        std::byte* to = target.data() + static_cast<std::size_t>(first - begin) * size;
        if (!run.tensor.is_contiguous()) fail("{}: {} is a view", run.file->path(), run.tensor.name);
        read_run(*run.file, run.tensor, run.begin + first - at, last - first,
                 [&](std::span<const std::byte> bytes) { to = std::copy(bytes.begin(), bytes.end(), to); });
      }
      at += run.count;
    }
  });
}

bool DeepSpeedCheckpoint::has(OptimizerPart part) const {
  const auto trained = std::find_if(tensors_.begin(), tensors_.end(), [](const Tensor& t) { return t.is_trained; });
  if (trained == tensors_.end()) return false;
  const Source& source = sources_[static_cast<std::size_t>(trained - tensors_.begin())];
  return source.universal.empty() ? !source.runs[index_of(part)].empty()
                                  : fs::exists(universal_file(source.universal, part));
}

DeepSpeedProgress DeepSpeedCheckpoint::progress() const {
  DeepSpeedProgress progress = read_deepspeed_counters(models_.front().file);
  for (const auto& optimizer : optimizers_) {
    const Pickle& pickle = optimizer.file.pickle();
    add_optimizer_progress(optimizer.file, *pickle.find(pickle.root(), "optimizer_state_dict"), progress);
  }
  if (files_.universal.empty()) return progress;
  if (const auto path = files_.universal / "optimizer_state.pt"; fs::exists(path)) {
    const TorchPickle file = open_deepspeed_file(path);
    add_optimizer_progress(file, file.pickle().root(), progress);
  }
  for (const auto& source : sources_) {
    const fs::path path = source.universal / "step.pt";
    if (progress.updates || source.universal.empty() || !fs::exists(path)) continue;
    const TorchPickle file = open_deepspeed_file(path);
    progress.updates = read_deepspeed_step(file, file.pickle().root());
  }
  return progress;
}

void DeepSpeedCheckpoint::verify(OptimizerPart part) const {
  std::map<const TorchPickle*, std::vector<TorchTensor>> tensors;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (const auto& folder = sources_[i].universal; !folder.empty()) {
      const TorchPickle file = open_deepspeed_file(universal_file(folder, part));
      file.verify({universal_tensor(file, tensors_[i].name)});
    } else {
      for (const auto& run : sources_[i].runs[index_of(part)]) tensors[run.file].push_back(run.tensor);
    }
  }
  for (const auto& [file, of_file] : tensors) file->verify(of_file);
}

}  // namespace heddle
