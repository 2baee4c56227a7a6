#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "formats/deepspeed_reader.h"
#include "formats/torch_pickle.h"

namespace heddle {

/// Opens a file of DeepSpeed's. Its own classes (loss scalers, fragment addresses, ...) and those of Python and NumPy
/// that lie beside the tensors are allowed by name, and stay records that nobody makes objects of.
TorchPickle open_deepspeed_file(const std::filesystem::path& path);

/// *_model_states.pt: what the model is, and what of it no optimizer holds. Parts are by DeepSpeed's keys.
struct DeepSpeedModelState {
  explicit DeepSpeedModelState(const std::filesystem::path& path);

  TorchPickle file;
  std::vector<std::vector<NamedShape>> param_shapes;  ///< by parameter group, in the order of the flat group
  std::vector<NamedShape> frozen_param_shapes;
  std::map<std::string, TorchTensor> frozen_param_fragments;
  std::vector<TorchTensor> buffers;                                ///< those of `module` that buffer_names names
  std::vector<std::pair<std::string, std::string>> shared_params;  ///< another name, and the one that has the values
};

/// What an optimizer holds of each parameter.
enum class OptimizerPart : std::uint8_t { fp32, exp_avg, exp_avg_sq };
constexpr std::array<const char*, 3> kOptimizerPartNames = {"fp32", "exp_avg", "exp_avg_sq"};

/// *_optim_states.pt: one rank's part of the optimizer.
struct DeepSpeedOptimizerState {
  explicit DeepSpeedOptimizerState(const std::filesystem::path& path);

  TorchPickle file;
  int stage = 0;
  std::int64_t partition_count = 0;  ///< ranks of the run
  /// By OptimizerPart and parameter group, flat; without moments where the optimizer has none of these names.
  std::array<std::vector<TorchTensor>, 3> groups;
  /// By parameter group and parameter: elements behind it that belong to none. Empty: none of them.
  std::vector<std::vector<std::int64_t>> param_alignment_paddings;
};

}  // namespace heddle
