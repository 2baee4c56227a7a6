#include "cli/tensor_source.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "formats/deepspeed_checkpoint.h"
#include "formats/file_reader.h"
#include "formats/gguf.h"
#include "formats/json.h"
#include "formats/safetensors.h"
#include "formats/torch_file.h"

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;

std::uint64_t byte_offset(DType dtype, std::int64_t elements) {
  return static_cast<std::uint64_t>(storage_bytes(dtype, elements));
}

/// A file class with tensors() and read(tensor, offset, target).
template <typename File>
class StoredSource final : public TensorSource {
 public:
  StoredSource(const fs::path& path, std::string format)
      : TensorSource(path.string()), file_(path), format_(std::move(format)) {
    for (const auto& tensor : file_.tensors()) add(tensor);
  }
  std::string format() const override { return format_; }
  void read(std::size_t tensor, std::int64_t begin, std::int64_t, std::span<std::byte> target) const override {
    file_.read(*stored_[tensor], byte_offset(tensors()[tensor].dtype, begin), target);
  }
  const GgufMetadata* metadata() const override {
    if constexpr (std::is_same_v<File, GgufFile>) return &file_.metadata();
    return nullptr;
  }

 private:
  void add(const StoredTensor& tensor) {
    tensors_.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.file});
    stored_.push_back(&tensor);
  }
  void add(const StoredTensor* tensor) { add(*tensor); }

  File file_;
  std::string format_;
  std::vector<const StoredTensor*> stored_;
};

class TorchSource final : public TensorSource {
 public:
  explicit TorchSource(const fs::path& path) : TensorSource(path.string()), file_(path) {
    for (const auto& tensor : file_.tensors()) {
      tensors_.push_back({tensor.name, tensor.dtype, tensor.shape, path.string()});
    }
  }
  std::string format() const override { return "PyTorch"; }
  void read(std::size_t tensor, std::int64_t begin, std::int64_t, std::span<std::byte> target) const override {
    const TorchTensor& stored = file_.tensors()[tensor];
    if (stored.is_contiguous()) return file_.read_contiguous(stored, begin, target);
    if (gathered_ != tensor) {
      bytes_.clear();
      file_.read(stored,
                 [&](std::span<const std::byte> piece) { bytes_.insert(bytes_.end(), piece.begin(), piece.end()); });
      gathered_ = tensor;
    }
    const auto from = bytes_.begin() + static_cast<std::ptrdiff_t>(byte_offset(stored.dtype, begin));
    std::copy_n(from, target.size(), target.begin());
  }

 private:
  TorchFile file_;
  mutable std::optional<std::size_t> gathered_;  // a view with strides is put together whole, once
  mutable std::vector<std::byte> bytes_;
};

class CheckpointSource final : public TensorSource {
 public:
  explicit CheckpointSource(const fs::path& path) : TensorSource(path.string()), checkpoint_(path) {
    for (const auto& [name, tensor] : checkpoint_.tensors()) {
      tensors_.push_back({name, tensor.dtype, tensor.shape, path.string()});
    }
  }
  std::string format() const override { return fmt::format("checkpoint of step {}", checkpoint_.step()); }
  void read(std::size_t tensor, std::int64_t begin, std::int64_t count, std::span<std::byte> target) const override {
    checkpoint_.read(tensors()[tensor].name, begin, begin + count, tensors()[tensor].dtype, target);
  }

 private:
  Checkpoint checkpoint_;
};

/// The fp32 weights of DeepSpeed's checkpoint, as its zero_to_fp32.py puts them together.
class DeepSpeedSource final : public TensorSource {
 public:
  explicit DeepSpeedSource(const fs::path& path) : TensorSource(path.string()), checkpoint_(path) {
    for (const auto& tensor : checkpoint_.tensors()) {
      tensors_.push_back({tensor.name, tensor.dtype, tensor.shape, path.string()});
    }
  }
  std::string format() const override {
    if (checkpoint_.stage() == 0) return "universal checkpoint of DeepSpeed";
    return fmt::format("DeepSpeed, ZeRO stage {}, {} ranks", checkpoint_.stage(), checkpoint_.ranks());
  }
  void read(std::size_t tensor, std::int64_t begin, std::int64_t, std::span<std::byte> target) const override {
    checkpoint_.read(tensor, OptimizerPart::fp32, begin, target);
  }

 private:
  DeepSpeedCheckpoint checkpoint_;
};

enum class Format { safetensors, gguf, torch };

std::optional<Format> format_by_ending(const fs::path& path) {
  constexpr std::array<std::pair<std::string_view, Format>, 6> kEndings = {{{".safetensors", Format::safetensors},
                                                                            {".gguf", Format::gguf},
                                                                            {".bin", Format::torch},
                                                                            {".pt", Format::torch},
                                                                            {".pth", Format::torch},
                                                                            {".ckpt", Format::torch}}};
  const std::string ending = path.extension().string();
  const auto* found = std::find_if(kEndings.begin(), kEndings.end(), [&](auto pair) { return pair.first == ending; });
  return found == kEndings.end() ? std::nullopt : std::optional(found->second);
}

/// What is no weight file often lies beside some.
[[noreturn]] void refuse(const fs::path& path) {
  const fs::path folder = path.parent_path().empty() ? "." : path.parent_path();
  const bool holds_weights = is_checkpoint(folder) || fs::exists(folder / "model.safetensors") ||
                             fs::exists(folder / "model.safetensors.index.json");
  fail("{}: is neither a safetensors, a GGUF nor a PyTorch file{}", path.string(),
       holds_weights ? fmt::format("; heddle inspect {} shows what its folder holds", folder.string()) : "");
}

Format format_by_beginning(const fs::path& path) {
  const FileReader file(path);
  std::string begin(std::min<std::uint64_t>(file.size(), 9), '\0');
  file.read(0, std::span<char>(begin));
  if (begin.starts_with("GGUF")) return Format::gguf;
  // The zip archive, and the pickle of protocol 2, of torch.save.
  if (begin.starts_with("PK\x03\x04") || begin.starts_with("\x80\x02\x8a\x0a")) return Format::torch;
  if (begin.size() == 9 && begin.back() == '{') return Format::safetensors;  // behind the length of its header
  refuse(path);
}

std::unique_ptr<TensorSource> open_file(const fs::path& path) {
  const auto by_ending = format_by_ending(path);
  switch (by_ending ? *by_ending : format_by_beginning(path)) {
    case Format::gguf: return std::make_unique<StoredSource<GgufFile>>(path, "GGUF");
    case Format::torch: return std::make_unique<TorchSource>(path);
    case Format::safetensors: break;
  }
  return std::make_unique<StoredSource<SafetensorsFile>>(path, "safetensors");
}

/// All weight files of a folder, in the order of their names.
class FolderSource final : public TensorSource {
 public:
  explicit FolderSource(const fs::path& path) : TensorSource(path.string()) {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(path)) {
      if (entry.is_regular_file() && format_by_ending(entry.path())) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    for (const fs::path& file : files) add(file);
    if (parts_.empty()) fail("{}: holds no safetensors, GGUF or PyTorch file", path.string());
  }
  std::string format() const override {
    return fmt::format("folder of {} file{}", parts_.size(), parts_.size() == 1 ? "" : "s");
  }
  void read(std::size_t tensor, std::int64_t begin, std::int64_t count, std::span<std::byte> target) const override {
    const auto [part, index] = place_[tensor];
    parts_[part]->read(index, begin, count, target);
  }

 private:
  void add(const fs::path& file) {
    try {
      parts_.push_back(open_file(file));
    } catch (const Error& error) {
      // .bin and .pt may be anything: an optimizer's state, a training script's arguments.
      if (format_by_ending(file) != Format::torch) throw;
      return warning("{}; it is not listed", error.what());
    }
    for (std::size_t i = 0; i < parts_.back()->tensors().size(); ++i) {
      tensors_.push_back(parts_.back()->tensors()[i]);
      place_.emplace_back(parts_.size() - 1, i);
    }
  }

  std::vector<std::unique_ptr<TensorSource>> parts_;
  std::vector<std::pair<std::size_t, std::size_t>> place_;  // part, and index in it
};

}  // namespace

std::int64_t ListedTensor::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) product *= extent;
  return product;
}

std::size_t TensorSource::find(std::string_view name) const {
  const auto is_named = [&](const ListedTensor& tensor) { return tensor.name == name; };
  const auto found = std::find_if(tensors_.begin(), tensors_.end(), is_named);
  if (found == tensors_.end()) return tensors_.size();
  if (const auto again = std::find_if(found + 1, tensors_.end(), is_named); again != tensors_.end()) {
    fail("{}: tensor {} lies in {} too", found->file, text_excerpt(name), again->file);
  }
  return static_cast<std::size_t>(found - tensors_.begin());
}

void TensorSource::for_each_piece(std::size_t tensor, const Use& use) const {
  const ListedTensor& listed = tensors_[tensor];
  const std::int64_t elements = listed.elements();
  std::vector<std::byte> bytes;
  for (std::int64_t begin = 0; begin < elements; begin += kPiece) {
    const std::int64_t count = std::min(kPiece, elements - begin);
    bytes.resize(static_cast<std::size_t>(storage_bytes(listed.dtype, count)));
    read(tensor, begin, count, bytes);
    use(bytes, begin, count);
  }
}

std::unique_ptr<TensorSource> open_tensor_source(const fs::path& path) {
  if (!fs::is_directory(path)) return open_file(path);
  if (is_checkpoint(path)) return std::make_unique<CheckpointSource>(path);
  if (fs::exists(path / "model.safetensors") || fs::exists(path / "model.safetensors.index.json")) {
    return std::make_unique<StoredSource<WeightFolder>>(path, "model folder");
  }
  if (is_deepspeed_checkpoint(path)) return std::make_unique<DeepSpeedSource>(path);
  return std::make_unique<FolderSource>(path);
}

}  // namespace heddle::cli
