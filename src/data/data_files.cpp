#include "data/data_files.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "data/data_stream.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kFilesNamed = 8;

bool is_data_file(const fs::path& path) {
  constexpr std::array<std::string_view, 4> kExtensions = {".jsonl", ".ndjson", ".json", ".txt"};
  if (path.extension() == ".parquet") return true;
  const bool is_compressed = compression_of(path) != Compression::none;
  const std::string extension = (is_compressed ? path.stem() : path).extension().string();
  return std::find(kExtensions.begin(), kExtensions.end(), extension) != kExtensions.end();
}

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

}  // namespace

std::vector<std::string> find_data_files(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return {path};
  std::vector<std::string> files, others;
  fs::recursive_directory_iterator entry(path, error);
  for (const fs::recursive_directory_iterator end; !error && entry != end; entry.increment(error)) {
    if (is_hidden(entry->path())) {
      entry.disable_recursion_pending();
    } else if (entry->is_regular_file(error) && !error) {
      (is_data_file(entry->path()) ? files : others).push_back(entry->path().string());
    }
  }
  if (error) fail("{}: {}", path, error.message());
  std::sort(files.begin(), files.end());
  std::sort(others.begin(), others.end());
  if (files.empty())
    fail("{}: no data file in this folder; expected .jsonl, .json or .txt, also as .gz or .zst, or .parquet", path);
  if (!others.empty()) {
    const std::size_t named = std::min(others.size(), kFilesNamed);
    note("{}: {} and passed over: {}{}", path,
         others.size() == 1 ? "1 file is no data file" : fmt::format("{} files are no data files", others.size()),
         fmt::join(others.begin(), others.begin() + static_cast<std::ptrdiff_t>(named), ", "),
         named < others.size() ? ", ..." : "");
  }
  return files;
}

}  // namespace heddle
