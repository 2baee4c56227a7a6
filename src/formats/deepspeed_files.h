#pragma once

#include <filesystem>
#include <vector>

namespace heddle {

/// The files of one checkpoint of DeepSpeed's ZeRO, which each rank wrote by itself.
struct DeepSpeedFiles {
  std::filesystem::path folder;                         ///< global_stepN, by what name ever
  std::vector<std::filesystem::path> model_states;      ///< by rank; of stages 1 and 2 one
  std::vector<std::filesystem::path> optimizer_states;  ///< by rank; none of a universal checkpoint
  bool has_model_state_by_rank = false;                 ///< as stage 3 has
  std::filesystem::path universal;                      ///< folder of a universal checkpoint's tensors; else empty
};

/// Whether the folder says that it is such a checkpoint, whole or not, or names one with `latest`.
bool is_deepspeed_checkpoint(const std::filesystem::path& folder);

/// Finds the files of a checkpoint: of the folder itself, or of the one that `latest` (or `latest_universal`) in it
/// names. Throws Error where ranks are missing or there twice, and for tensor, pipeline and expert parallel runs.
DeepSpeedFiles find_deepspeed_files(const std::filesystem::path& folder);

}  // namespace heddle
