#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "formats/json_reader.h"
#include "formats/safetensors.h"

namespace heddle {
namespace {

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

/// {tensor: shard}. Shards must lie in the folder by name; what a link in it points to is the user's choice (the
/// Hugging Face cache is made of links).
std::map<std::string, std::string> read_weight_map(const std::filesystem::path& index_path) {
  const Json index = read_json_file(index_path);
  const JsonReader reader(index, index_path.string());
  const Json* entries = reader.find("weight_map");
  if (entries == nullptr || !entries->is_object() || entries->empty()) {
    reader.refuse("weight_map", "an object {tensor: file}");
  }
  std::map<std::string, std::string> weight_map;
  for (const auto& [tensor, file] : entries->get_ref<const Json::object_t&>()) {
    const std::string where = fmt::format("{}: weight_map.{}", index_path.string(), text_excerpt(tensor));
    if (!file.is_string()) fail("{} is {}; expected a file name", where, json_excerpt(file));
    const std::filesystem::path name(file.get_ref<const std::string&>());
    if (name.is_absolute() || std::find(name.begin(), name.end(), "..") != name.end()) {
      fail("{} is {}, outside the folder; expected a file in it", where, json_excerpt(file));
    }
    if (name.extension() != ".safetensors") fail("{} is {}; expected a .safetensors file", where, json_excerpt(file));
    weight_map.emplace(tensor, name.string());
  }
  return weight_map;
}

}  // namespace

WeightFolder::WeightFolder(const std::filesystem::path& folder) {
  const auto single = folder / kSingleFile, index = folder / kIndexFile;
  std::error_code code;
  if (!std::filesystem::is_directory(folder, code))
    fail("{}: is no folder; expected one with weights", folder.string());
  const bool has_index = std::filesystem::exists(index, code);
  if (std::filesystem::exists(single, code)) {
    if (has_index) note("{}: is read; {} beside it is not", single.string(), kIndexFile);
    files_.emplace_back(single);
    for (const StoredTensor& tensor : files_.back().tensors()) file_of_.emplace(tensor.name, 0);
  } else if (has_index) {
    open_shards(index);
  } else {
    const bool has_pickle = std::filesystem::exists(folder / "pytorch_model.bin", code) ||
                            std::filesystem::exists(folder / "pytorch_model.bin.index.json", code);
    fail("{}: holds neither {} nor {}{}", folder.string(), kSingleFile, kIndexFile,
         has_pickle ? "; pytorch_model.bin is not read: convert it to safetensors" : "");
  }
}

void WeightFolder::open_shards(const std::filesystem::path& index_path) {
  weight_map_ = read_weight_map(index_path);
  std::set<std::string> names;
  for (const auto& [tensor, file] : weight_map_) names.insert(file);
  std::map<std::string, std::size_t> place;
  for (const std::string& name : names) {
    const auto path = index_path.parent_path() / name;
    std::error_code code;
    if (!std::filesystem::exists(path, code))
      fail("{}: weight_map names {}, which is not there", index_path.string(), text_excerpt(name));
    place.emplace(name, files_.size());
    files_.emplace_back(path);
  }

  for (std::size_t i = 0; i < files_.size(); ++i) {
    for (const StoredTensor& tensor : files_[i].tensors()) {
      const auto [known, is_new] = file_of_.emplace(tensor.name, i);
      if (!is_new) {
        fail("{}: tensor {}: lies in {} too; expected one shard", tensor.file, text_excerpt(tensor.name),
             files_[known->second].find(tensor.name)->file);
      }
    }
  }
  for (const auto& [tensor, file] : weight_map_) {
    if (files_[place.at(file)].find(tensor) == nullptr) {
      fail("{}: weight_map.{} is {}; that file does not hold the tensor", index_path.string(), text_excerpt(tensor),
           text_excerpt(file));
    }
  }
  for (const auto& [tensor, i] : file_of_) {
    if (!weight_map_.contains(tensor)) {
      fail("{}: weight_map lacks tensor {}, which lies in {}", index_path.string(), text_excerpt(tensor),
           files_[i].find(tensor)->file);
    }
  }
}

std::vector<const StoredTensor*> WeightFolder::tensors() const {
  std::vector<const StoredTensor*> all;
  all.reserve(file_of_.size());
  for (const SafetensorsFile& file : files_) {
    for (const StoredTensor& tensor : file.tensors()) all.push_back(&tensor);
  }
  return all;
}

const StoredTensor* WeightFolder::find(const std::string& name) const {
  const auto found = file_of_.find(name);
  return found == file_of_.end() ? nullptr : files_[found->second].find(name);
}

const SafetensorsFile& WeightFolder::file_with(const StoredTensor& tensor) const {
  const auto found = file_of_.find(tensor.name);
  HEDDLE_CHECK(found != file_of_.end());
  return files_[found->second];
}

void WeightFolder::read(const StoredTensor& tensor, std::uint64_t offset, std::span<std::byte> target) const {
  file_with(tensor).read(tensor, offset, target);
}

}  // namespace heddle
