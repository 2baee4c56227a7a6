#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "config/run_config.h"

namespace heddle {

struct ConvertedRun {
  std::string yaml;                // the run file
  std::vector<std::string> notes;  // arguments that are left out, and why
};

/// Hugging Face's TrainingArguments, as to_json_string() writes them, as a run file. It has the keys whose value is not
/// the run file's default. Keys of the run file among the arguments (as scripts keep model_name_or_path) are taken
/// over; `overrides` are added, `deepspeed` among them. Throws Error for unknown arguments, for those that are refused,
/// and for what a run file must not say.
ConvertedRun run_file_from_trainer(const std::filesystem::path& path, const RunFile::Overrides& overrides);

/// The same from text; `name` stands for the file in errors.
ConvertedRun run_file_from_trainer_text(std::string_view text, const std::string& name,
                                        const RunFile::Overrides& overrides);

}  // namespace heddle
