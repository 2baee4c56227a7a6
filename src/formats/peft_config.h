#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "formats/json.h"

namespace heddle {

/// PEFT's LoraConfig, as its adapter_config.json spells it: y = x·Wᵀ + scaling * dropout(x)·Aᵀ·Bᵀ, A [r, inputs],
/// B [outputs, r] (Hu et al. 2021, arXiv:2106.09685).
struct LoraConfig {
  std::int64_t r = 8;
  double lora_alpha = 8;
  double lora_dropout = 0;
  /// Modules by their whole name or its end ("q_proj"). Empty: those that PEFT takes for the model's family.
  std::vector<std::string> target_modules;
  /// In place of the list: "all-linear", or a regular expression of whole names.
  std::string target_pattern;
  std::vector<std::string> exclude_modules;          ///< never targets
  std::vector<std::string> modules_to_save;          ///< trained whole, by name or its end
  std::vector<std::int64_t> layers_to_transform;     ///< blocks with targets; empty: all
  std::vector<std::string> layers_pattern;           ///< what stands before the block's index in a name
  std::map<std::string, std::int64_t> rank_pattern;  ///< r of modules, by the end of their name
  std::map<std::string, double> alpha_pattern;       ///< lora_alpha of modules
  bool use_rslora = false;           ///< scaling is lora_alpha / sqrt(r) (Kalajdzievski 2023, arXiv:2312.03732)
  bool use_dora = false;             ///< weight-decomposed (Liu et al. 2024, arXiv:2402.09353)
  bool ensure_weight_tying = false;  ///< modules_to_save: the embedding and a head tied to it stay one
  /// Ids whose rows of a table are trained, by its module's name or its end; of the embedding where that is empty.
  std::map<std::string, std::vector<std::int64_t>> trainable_token_indices;
  std::string bias = "none";    ///< biases that are trained: none, all, lora_only (of modules with an adapter)
  bool fan_in_fan_out = false;  ///< the base's weights lie as [inputs, outputs] (GPT-2)
  std::string base_model_name_or_path;
  Json document;  ///< the file's keys as they were, null for a config that comes from a run file

  bool operator==(const LoraConfig& other) const = default;
};

/// Reads adapter_config.json of an adapter's folder. Throws Error naming file and key for another method than LoRA, and
/// for variants of it that would compute something else.
LoraConfig read_adapter_config(const std::filesystem::path& folder);

/// The file's text: the document's keys with the values of `config`, so that PEFT reads it.
std::string adapter_config_text(const LoraConfig& config);

}  // namespace heddle
