#pragma once

#include <string>
#include <vector>

namespace heddle {

/// A data file itself, or the data files of a folder and those below it, in order of their paths: .jsonl, .ndjson,
/// .json and .txt, also as .gz or .zst, and .parquet. Hidden files are passed over, others in a note. Throws Error
/// where there is none.
std::vector<std::string> find_data_files(const std::string& path);

}  // namespace heddle
