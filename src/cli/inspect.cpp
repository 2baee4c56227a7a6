#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "cli/commands.h"
#include "formats/json.h"
#include "formats/safetensors.h"
#include "formats/tensor_values.h"

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;

/// Tensors of one safetensors file or of a model folder.
class Weights {
 public:
  explicit Weights(const std::string& path) : path_(path) {
    if (fs::is_directory(path)) {
      folder_.emplace(fs::path(path));
      tensors_ = folder_->tensors();
    } else {
      file_.emplace(fs::path(path));
      for (const auto& tensor : file_->tensors()) tensors_.push_back(&tensor);
    }
  }
  const std::vector<const StoredTensor*>& tensors() const { return tensors_; }
  const StoredTensor* find(const std::string& name) const { return folder_ ? folder_->find(name) : file_->find(name); }
  void read(const StoredTensor& tensor, std::uint64_t offset, std::span<std::byte> target) const {
    folder_ ? folder_->read(tensor, offset, target) : file_->read(tensor, offset, target);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::optional<WeightFolder> folder_;
  std::optional<SafetensorsFile> file_;
  std::vector<const StoredTensor*> tensors_;
};

/// Calls use(offset, size) for the tensor's bytes, piece by piece, each of whole elements.
template <typename Use>
void for_each_piece(const StoredTensor& tensor, Use use) {
  constexpr std::uint64_t kPiece = std::uint64_t{1} << 20;
  for (std::uint64_t at = 0; at < tensor.bytes(); at += kPiece) use(at, std::min(kPiece, tensor.bytes() - at));
}

Json description(const StoredTensor& tensor) {
  return {{"name", tensor.name}, {"dtype", safetensors_name(tensor.dtype)}, {"shape", tensor.shape}};
}

void print_tensors(const Weights& weights, bool as_json) {
  Json list = Json::array();
  for (const auto* tensor : weights.tensors()) {
    list.push_back(description(*tensor));
    if (!as_json) {
      std::printf("%-60s %-8s %s\n", tensor->name.c_str(), std::string(safetensors_name(tensor->dtype)).c_str(),
                  list.back()["shape"].dump().c_str());
    }
  }
  if (as_json) std::printf("%s\n", Json{{"tensors", list}}.dump().c_str());
}

void print_values(const Weights& weights, const std::string& name) {
  const StoredTensor* tensor = weights.find(name);
  if (tensor == nullptr) fail("{}: has no tensor {}", weights.path(), name);
  if (!has_values(tensor->dtype))
    fail("{}: tensor {} has type {}; values are shown of types of whole bytes", weights.path(), name,
         safetensors_name(tensor->dtype));
  Json values = Json::array();
  for_each_piece(*tensor, [&](std::uint64_t offset, std::uint64_t size) {
    std::vector<std::byte> piece(size);
    weights.read(*tensor, offset, piece);
    append_values(tensor->dtype, piece, values);
  });
  Json document = description(*tensor);
  document["values"] = std::move(values);
  std::printf("%s\n", document.dump().c_str());
}

void print_differences(const Weights& a, const Weights& b, bool as_json) {
  Json differences = Json::array();
  const auto differ = [&](const std::string& name, const std::string& what) {
    differences.push_back({{"name", name}, {"what", what}});
  };
  for (const auto* tensor : a.tensors()) {
    const StoredTensor* other = b.find(tensor->name);
    if (other == nullptr) {
      differ(tensor->name, "only in " + a.path());
    } else if (tensor->dtype != other->dtype || tensor->shape != other->shape) {
      differ(tensor->name, "type or shape");
    } else {
      bool equal = true;
      for_each_piece(*tensor, [&](std::uint64_t offset, std::uint64_t size) {
        std::vector<std::byte> x(size), y(size);
        a.read(*tensor, offset, x);
        b.read(*other, offset, y);
        equal = equal && x == y;
      });
      if (!equal) differ(tensor->name, "values");
    }
  }
  for (const auto* tensor : b.tensors()) {
    if (a.find(tensor->name) == nullptr) differ(tensor->name, "only in " + b.path());
  }
  if (as_json) {
    std::printf("%s\n", Json{{"equal", differences.empty()}, {"differences", differences}}.dump().c_str());
    return;
  }
  if (differences.empty()) std::puts("equal");
  for (const auto& difference : differences) {
    std::printf("%-60s %s\n", difference["name"].get<std::string>().c_str(),
                difference["what"].get<std::string>().c_str());
  }
}

}  // namespace

void add_inspect(CLI::App& program, Outcome&) {
  struct Options {
    std::string path, other, tensor;
    bool values = false, json = false;
  };
  auto* command = program.add_subcommand("inspect", "what a weight file or folder holds; of two, the differences");
  auto options = std::make_shared<Options>();
  command->add_option("PATH", options->path, "safetensors file or model folder")->required();
  command->add_option("OTHER", options->other, "the one to compare with");
  command->add_option("--tensor", options->tensor, "one tensor");
  command->add_flag("--values", options->values, "its values, decoded");
  command->add_flag("--json", options->json, "print one JSON document");
  command->callback([options] {
    const Weights weights(options->path);
    if (!options->other.empty()) return print_differences(weights, Weights(options->other), options->json);
    if (!options->tensor.empty()) return print_values(weights, options->tensor);
    print_tensors(weights, options->json);
  });
}

}  // namespace heddle::cli
