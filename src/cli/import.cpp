#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/threads.h"
#include "cli/commands.h"
#include "formats/deepspeed_checkpoint.h"
#include "formats/files.h"
#include "formats/json_reader.h"
#include "formats/safetensors.h"
#include "formats/torch_file.h"
#include "train/deepspeed_import.h"
#include "train/model_folder.h"

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndexName = "pytorch_model.bin.index.json";

bool has_torch_weights(const fs::path& folder) {
  return fs::exists(folder / "pytorch_model.bin") || fs::exists(folder / kIndexName);
}

/// "; checkpoint-20 in it is one": of a folder of checkpoints the last by name, so that an error says what to import.
std::string checkpoint_within(const fs::path& folder) {
  fs::path last;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_directory() && is_deepspeed_checkpoint(entry.path()) && (last.empty() || entry.path() > last))
      last = entry.path();
  }
  return last.empty() ? "" : fmt::format("; {} in it is one", last.filename().string());
}

/// pytorch_model.bin of a folder, or the shards that its index names.
std::vector<fs::path> files_of(const fs::path& source) {
  if (!fs::is_directory(source)) return {source};
  if (fs::exists(source / "pytorch_model.bin")) return {source / "pytorch_model.bin"};
  const fs::path index_path = source / kIndexName;
  if (!fs::exists(index_path))
    fail(
        "{}: holds neither pytorch_model.bin nor {}, nor is it a checkpoint of DeepSpeed (latest, *_optim_states.pt){}",
        source.string(), kIndexName, checkpoint_within(source));
  const Json index = read_json_file(index_path);
  const JsonReader reader(index, index_path.string());
  std::set<std::string> names;
  for (const auto& [tensor, file] : reader.object("weight_map").value().items()) {
    if (!file.is_string() || file.get<std::string>().find('/') != std::string::npos)
      fail("{}: weight_map.{} is {}; expected a file of the folder", index_path.string(), text_excerpt(tensor),
           json_excerpt(file));
    names.insert(file.get<std::string>());
  }
  std::vector<fs::path> files;
  files.reserve(names.size());
  for (const auto& name : names) files.push_back(source / name);
  return files;
}

struct Found {
  const TorchFile* file;
  const TorchTensor* tensor;
};

std::vector<Found> tensors_of(const std::vector<TorchFile>& files, const std::vector<fs::path>& paths) {
  std::vector<Found> all;
  std::map<std::string, std::size_t> file_of;
  for (std::size_t i = 0; i < files.size(); ++i) {
    for (const auto& tensor : files[i].tensors()) {
      const auto [known, is_new] = file_of.emplace(tensor.name, i);
      if (!is_new) {
        fail("{}: tensor {} lies in {} too", paths[i].string(), text_excerpt(tensor.name),
             paths[known->second].filename().string());
      }
      all.push_back({&files[i], &tensor});
    }
  }
  return all;
}

/// Calls read(i, use) for each of `entries`, those of larger elements first, so that each lies at a multiple of its
/// element's size.
template <typename Read>
void write_weights(const fs::path& target, const std::vector<SafetensorsWriter::Entry>& entries, Read read) {
  std::vector<std::size_t> order(entries.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return dtype_bytes(entries[a].dtype) > dtype_bytes(entries[b].dtype);
  });
  std::vector<SafetensorsWriter::Entry> ordered;
  ordered.reserve(order.size());
  for (const std::size_t i : order) ordered.push_back(entries[i]);
  make_folder(target);
  SafetensorsWriter writer(target / "model.safetensors", ordered, {{"format", "pt"}});
  for (const std::size_t i : order) read(i, [&](std::span<const std::byte> bytes) { writer.append(bytes); });
  writer.finish();
}

void import_torch(const fs::path& source, const fs::path& target) {
  const auto paths = files_of(source);
  const std::vector<TorchFile> files(std::make_move_iterator(paths.begin()), std::make_move_iterator(paths.end()));
  const auto tensors = tensors_of(files, paths);
  for (const auto& file : files) file.verify();
  std::vector<SafetensorsWriter::Entry> entries;
  entries.reserve(tensors.size());
  for (const auto& [file, tensor] : tensors) entries.push_back({tensor->name, tensor->dtype, tensor->shape});
  write_weights(target, entries,
                [&](std::size_t i, const auto& use) { tensors[i].file->read(*tensors[i].tensor, use); });
  write_model_files(target, companion_files(paths.front().parent_path()));
  note("{} tensor{} of {} {} in {}", tensors.size(), tensors.size() == 1 ? "" : "s", source.string(),
       tensors.size() == 1 ? "is" : "are", target.string());
}

/// Training scripts save the model's files beside DeepSpeed's folder of the step, or in it.
fs::path model_folder(const fs::path& source, const DeepSpeedCheckpoint& checkpoint) {
  return fs::exists(source / "config.json") ? source : checkpoint.folder() / "..";
}

void import_deepspeed(const fs::path& source, const fs::path& target) {
  const DeepSpeedCheckpoint checkpoint(source);
  checkpoint.verify(OptimizerPart::fp32);
  std::vector<SafetensorsWriter::Entry> entries;
  entries.reserve(checkpoint.tensors().size());
  for (const auto& tensor : checkpoint.tensors()) entries.push_back({tensor.name, tensor.dtype, tensor.shape});
  write_weights(target, entries, [&](std::size_t i, const auto& use) { checkpoint.read(i, OptimizerPart::fp32, use); });
  write_model_files(target, companion_files(model_folder(source, checkpoint)));
  const std::string kind = checkpoint.stage() == 0
                               ? "universal"
                               : fmt::format("ZeRO stage {}, {} ranks", checkpoint.stage(), checkpoint.ranks());
  note("{} tensors of {} ({}) are in {}", entries.size(), checkpoint.folder().string(), kind, target.string());
}

struct Options {
  std::string source, target, format = "hf", config_name;
};

/// A checkpoint of Heddle's, in the output folder of the run that goes on from it.
void import_training(const Options& options) {
  if (!is_deepspeed_checkpoint(options.source)) {
    const fs::path source = options.source;
    if (!fs::is_directory(source) || has_torch_weights(source))
      fail("{}: holds weights alone; --format checkpoint takes a checkpoint of DeepSpeed", options.source);
    fail("{}: is no checkpoint of DeepSpeed (latest, *_optim_states.pt){}", options.source, checkpoint_within(source));
  }
  const DeepSpeedCheckpoint checkpoint(options.source);
  const fs::path model =
      options.config_name.empty() ? model_folder(options.source, checkpoint) : fs::path(options.config_name);
  if (options.config_name.empty() && !fs::exists(model / "config.json"))
    fail("{}: has no config.json, which names the model; expected --config_name FOLDER", options.source);
  set_threads(available_cores());
  import_deepspeed_checkpoint(checkpoint, open_model(model), options.target);
}

void import_from(const Options& options) {
  const fs::path source = options.source, target = options.target;
  if (options.format == "checkpoint") return import_training(options);
  if (!options.config_name.empty()) throw UsageError("--config_name is for --format checkpoint");
  if (!is_deepspeed_checkpoint(source)) return import_torch(source, target);
  if (has_torch_weights(source))
    note("{}: holds pytorch_model.bin too; DeepSpeed's fp32 weights are read instead", source.string());
  import_deepspeed(source, target);
}

}  // namespace

void add_import(CLI::App& program, Outcome&) {
  auto options = std::make_shared<Options>();
  auto* command = program.add_subcommand("import", "weights of PyTorch or DeepSpeed, or a DeepSpeed run to go on with");
  command
      ->add_option("SOURCE", options->source,
                   "a .bin or .pt file, a folder with pytorch_model.bin, or a checkpoint of DeepSpeed")
      ->required();
  command->add_option("OUT", options->target, "folder to write; of a checkpoint: the output_dir")->required();
  command->add_option("--format", options->format, "hf (weights), checkpoint (masters, moments, steps)")
      ->check(CLI::IsMember({"hf", "checkpoint"}));
  command->add_option("--config_name", options->config_name,
                      "of a checkpoint: folder with the model's config.json and tokenizer; default: beside SOURCE");
  command->callback([options] { import_from(*options); });
}

}  // namespace heddle::cli
