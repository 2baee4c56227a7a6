#include "formats/deepspeed_files.h"

#include <charconv>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "formats/files.h"
#include "formats/json.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kModelEnd = "_model_states.pt", kOptimizerEnd = "_optim_states.pt";

/// What a file's name says: [bf16_|fp16_][zero_pp_rank_R_]mp_rank_M{_model_states.pt|_optim_states.pt}
struct StateName {
  std::optional<int> rank;
  int model_parallel_rank = 0;
};

bool take(std::string_view& text, std::string_view begin) {
  if (!text.starts_with(begin)) return false;
  text.remove_prefix(begin.size());
  return true;
}

std::optional<int> take_number(std::string_view& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

std::optional<StateName> parse_name(std::string_view text) {
  StateName name;
  if (!take(text, "bf16_")) take(text, "fp16_");
  if (take(text, "zero_pp_rank_")) {
    name.rank = take_number(text);
    if (!name.rank || !take(text, "_")) return std::nullopt;
  }
  if (!take(text, "mp_rank_")) return std::nullopt;
  const auto model_parallel_rank = take_number(text);
  if (!model_parallel_rank || (text != kModelEnd && text != kOptimizerEnd)) return std::nullopt;
  name.model_parallel_rank = *model_parallel_rank;
  return name;
}

/// Files by rank; that of stages 1 and 2, which is of all ranks, has rank -1.
using ByRank = std::map<int, fs::path>;

ByRank files_ending(const fs::path& folder, std::string_view end) {
  ByRank files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string file = entry.path().filename().string();
    if (!file.ends_with(end)) continue;
    const auto name = parse_name(file);
    if (!name)
      fail("{}: is no state of a data-parallel rank; checkpoints of experts and pipelines are not read",
           entry.path().string());
    if (name->model_parallel_rank != 0)
      fail("{}: is of tensor- or pipeline-parallel rank {}; only checkpoints of data-parallel runs are read",
           entry.path().string(), name->model_parallel_rank);
    const auto [known, is_new] = files.emplace(name->rank.value_or(-1), entry.path());
    if (!is_new)
      fail("{}: is of the same rank as {}; one of them belongs to another run", entry.path().string(),
           known->second.filename().string());
  }
  return files;
}

/// The files of ranks 0, 1, 2 ... without a gap.
std::vector<fs::path> in_order(const fs::path& folder, const ByRank& files, std::string_view what) {
  std::vector<fs::path> ordered;
  for (const auto& [rank, path] : files) {
    if (rank != static_cast<int>(ordered.size())) {
      fail("{}: the {} of rank {} is missing (zero_pp_rank_{}_...); that of rank {} is there", folder.string(), what,
           ordered.size(), ordered.size(), rank);
    }
    ordered.push_back(path);
  }
  return ordered;
}

bool has_states(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string file = entry.path().filename().string();
    if (file.ends_with(kModelEnd) || file.ends_with(kOptimizerEnd)) return true;
  }
  return false;
}

/// `latest` before `latest_universal`; null where neither is there.
const char* pointer_in(const fs::path& folder) {
  for (const char* name : {"latest", "latest_universal"}) {
    if (fs::is_regular_file(folder / name)) return name;
  }
  return nullptr;
}

fs::path folder_of_states(const fs::path& folder) {
  const char* pointer = pointer_in(folder);
  if (has_states(folder) || pointer == nullptr) return folder;
  std::string tag = read_text_file(folder / pointer, 4096);
  tag.erase(tag.find_last_not_of(" \t\r\n") + 1);
  const std::string where = (folder / pointer).string();
  if (tag.empty() || tag == "." || tag == ".." || tag.find_first_of(std::string_view("/\0", 2)) != std::string::npos)
    fail("{}: is \"{}\"; expected the name of a folder beside it", where, text_excerpt(tag));
  if (!fs::is_directory(folder / tag)) fail("{}: names {}, which is no folder beside it", where, text_excerpt(tag));
  return folder / tag;
}

}  // namespace

bool is_deepspeed_checkpoint(const fs::path& folder) {
  return fs::is_directory(folder) && (pointer_in(folder) != nullptr || has_states(folder));
}

DeepSpeedFiles find_deepspeed_files(const fs::path& source) {
  DeepSpeedFiles files;
  files.folder = folder_of_states(source);
  const std::string where = files.folder.string();
  const ByRank optimizer = files_ending(files.folder, kOptimizerEnd);
  ByRank model = files_ending(files.folder, kModelEnd);
  if (optimizer.empty() && fs::is_directory(files.folder / "zero")) files.universal = files.folder / "zero";
  if (model.empty()) fail("{}: holds no *{}", where, kModelEnd);
  if (optimizer.empty() && files.universal.empty())
    fail("{}: holds no zero_pp_rank_*{}: no checkpoint of ZeRO, or one without its optimizer", where, kOptimizerEnd);
  if (const auto whole = model.find(-1); whole != model.end()) {
    if (model.size() > 1)
      fail("{}: is of ZeRO stage 1 or 2, {} of stage 3; one of them belongs to another run", whole->second.string(),
           model.rbegin()->second.filename().string());
    files.model_states = {whole->second};
  } else {
    files.model_states = in_order(files.folder, model, "model state");
    files.has_model_state_by_rank = true;
  }
  if (const auto whole = optimizer.find(-1); whole != optimizer.end())
    fail("{}: is of no rank; expected zero_pp_rank_R_mp_rank_00{}", whole->second.string(), kOptimizerEnd);
  files.optimizer_states = in_order(files.folder, optimizer, "optimizer state");
  return files;
}

}  // namespace heddle
