#include "checkpoint/checkpoint.h"

#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "formats/files.h"
#include "formats/json_reader.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

constexpr int kFormatVersion = 1;
constexpr std::string_view kPrefix = "checkpoint-";

std::string checksum_of(std::span<const std::byte> bytes) {
  return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
}

fs::path folder_of(const fs::path& output_dir, std::int64_t step) {
  return output_dir / fmt::format("{}{}", kPrefix, step);
}

void check_space(const fs::path& output_dir, std::span<const CheckpointTensor> tensors) {
  std::uint64_t needed = std::uint64_t{1} << 20;
  for (const auto& tensor : tensors) needed += tensor.bytes.size();
  std::error_code error;
  const auto space = fs::space(output_dir, error);
  if (!error && space.available < needed) {
    fail("{}: a checkpoint needs {} bytes, {} are free", output_dir.string(), format_count(needed),
         format_count(space.available));
  }
}

std::int64_t elements_of(const std::vector<std::int64_t>& shape) {
  std::int64_t product = 1;
  for (const auto extent : shape) product *= extent;
  return product;
}

}  // namespace

fs::path save_checkpoint(const fs::path& output_dir, std::int64_t step, std::span<const CheckpointTensor> tensors,
                         const Json& state, std::span<const fs::path> files) {
  check_space(output_dir, tensors);
  const fs::path aside = output_dir / fmt::format(".{}{}.partial", kPrefix, step);
  fs::path target = folder_of(output_dir, step);
  std::error_code ignored;
  fs::remove_all(aside, ignored);
  make_folder(aside);
  const std::string state_file = "state-00000.safetensors";
  std::vector<SafetensorsWriter::Entry> entries;
  Json listed = Json::object();
  for (const auto& tensor : tensors) {
    entries.push_back({tensor.name, tensor.dtype, tensor.shape});
    listed[tensor.name] = {{"dtype", safetensors_name(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"pieces", Json::array({{{"file", state_file},
                                                    {"begin", 0},
                                                    {"end", elements_of(tensor.shape)},
                                                    {"xxh3", checksum_of(tensor.bytes)}}})}};
  }
  SafetensorsWriter writer(aside / state_file, entries, {{"format", "heddle-checkpoint"}});
  for (const auto& tensor : tensors) writer.append(tensor.bytes);
  writer.finish();
  for (const auto& file : files) {
    fs::copy_file(file, aside / file.filename(), fs::copy_options::overwrite_existing);
    sync_file(aside / file.filename());
  }
  const Json manifest = {{"format", "heddle-checkpoint"},
                         {"version", kFormatVersion},
                         {"step", step},
                         {"state", state},
                         {"tensors", listed}};
  write_text_file(aside / "manifest.json", manifest.dump(1) + "\n");
  sync_folder(aside);
  if (fs::exists(target)) fs::remove_all(target);  // the same step again, after a resume from an older one
  fs::rename(aside, target);
  sync_folder(output_dir);
  return target;
}

Checkpoint::Checkpoint(fs::path folder) : folder_(std::move(folder)) {
  const fs::path path = folder_ / "manifest.json";
  if (!fs::exists(path)) fail("{}: is no checkpoint: it has no manifest.json", folder_.string());
  const Json manifest = read_json_file(path);
  const JsonReader reader(manifest, path.string());
  if (reader.text("format") != "heddle-checkpoint") reader.refuse("format", "heddle-checkpoint");
  reader.integer("version", kFormatVersion, kFormatVersion);
  step_ = reader.integer("step", 0, INT64_MAX);
  state_ = reader.object("state").value();
  std::map<std::string, std::size_t> file_index;
  for (const auto& [name, value] : reader.object("tensors").value().items()) {
    const JsonReader tensor(value, fmt::format("{}: {}", path.string(), name));
    Entry entry;
    entry.dtype = dtype_from_safetensors(tensor.text("dtype"));
    entry.shape = value.at("shape").get<std::vector<std::int64_t>>();
    for (const auto& piece : value.at("pieces")) {
      const auto file = piece.at("file").get<std::string>();
      if (file.find('/') != std::string::npos)
        fail("{}: {} names a file outside the checkpoint: {}", path.string(), name, file);
      const auto [found, is_new] = file_index.try_emplace(file, files_.size());
      if (is_new) files_.emplace_back(folder_ / file);
      entry.pieces.push_back({found->second, piece.at("begin").get<std::uint64_t>(),
                              piece.at("end").get<std::uint64_t>(), piece.at("xxh3").get<std::string>()});
    }
    entries_.emplace(name, std::move(entry));
  }
}

std::span<const std::byte> Checkpoint::checked_bytes(const std::string& name, const Piece& piece) const {
  const SafetensorsFile& file = files_[piece.file];
  const StoredTensor* stored = file.find(name);
  if (stored == nullptr) fail("{}: tensor {} is missing", folder_.string(), name);
  const auto bytes = file.bytes(*stored);
  if (const auto found = checksum_of(bytes); found != piece.checksum) {
    fail("{}: tensor {} is damaged: checksum {}, the manifest says {}", stored->file, name, found, piece.checksum);
  }
  return bytes;
}

void Checkpoint::verify() const {
  for (const auto& [name, entry] : entries_) {
    for (const auto& piece : entry.pieces) checked_bytes(name, piece);
  }
}

void Checkpoint::read(const std::string& name, DType dtype, std::span<std::byte> target) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) fail("{}: has no tensor {}", folder_.string(), name);
  const Entry& entry = found->second;
  const auto bytes = static_cast<std::size_t>(elements_of(entry.shape)) * dtype_bytes(entry.dtype);
  if (entry.dtype != dtype || bytes != target.size()) {
    fail("{}: tensor {} holds {} bytes of {}; this run needs {} bytes of {}", folder_.string(), name, bytes,
         safetensors_name(entry.dtype), target.size(), safetensors_name(dtype));
  }
  for (const auto& piece : entry.pieces) {
    const auto source = checked_bytes(name, piece);
    std::memcpy(target.data() + piece.begin * dtype_bytes(dtype), source.data(), source.size());
  }
}

std::vector<std::int64_t> checkpoint_steps(const fs::path& output_dir) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(output_dir, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    std::int64_t step = 0;
    const char* end = name.data() + name.size();
    if (const auto [at, failed] = std::from_chars(name.data() + kPrefix.size(), end, step);
        failed == std::errc{} && at == end) {
      steps.push_back(step);
    }
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

std::optional<Checkpoint> newest_checkpoint(const fs::path& output_dir) {
  for (const auto step : checkpoint_steps(output_dir)) {
    try {
      Checkpoint checkpoint(folder_of(output_dir, step));
      checkpoint.verify();
      return checkpoint;
    } catch (const std::exception& e) {
      warning("checkpoint-{} cannot be used, trying the one before: {}", step, e.what());
    }
  }
  return std::nullopt;
}

void remove_old_checkpoints(const fs::path& output_dir, std::int64_t keep) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(output_dir, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(".checkpoint-") && name.ends_with(".partial")) fs::remove_all(entry.path(), ignored);
  }
  if (keep <= 0) return;
  const auto steps = checkpoint_steps(output_dir);
  for (std::size_t i = static_cast<std::size_t>(keep); i < steps.size(); ++i)
    fs::remove_all(folder_of(output_dir, steps[i]), ignored);
}

}  // namespace heddle
