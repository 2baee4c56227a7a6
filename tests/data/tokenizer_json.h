#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "base/error.h"
#include "data/tokenizer.h"
#include "formats/json.h"

namespace heddle::test {

/// A folder for one test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string path = (std::filesystem::temp_directory_path() / "tokenizer-XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = path;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
  }

 private:
  std::filesystem::path path_;
};

inline std::unique_ptr<Tokenizer> load_text(const std::string& text) {
  const TemporaryFolder folder;
  folder.write("tokenizer.json", text);
  return Tokenizer::load(folder.path() / "tokenizer.json");
}
inline std::unique_ptr<Tokenizer> load_json(const Json& document) { return load_text(document.dump()); }

/// The message that loading fails with.
inline std::string refusal_of(const std::string& text) {
  try {
    load_text(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// Reference data beside the repository, or HEDDLE_DATA.
inline std::filesystem::path data_folder() {
  const char* given = std::getenv("HEDDLE_DATA");
  return given != nullptr ? std::filesystem::path(given) : std::filesystem::path(HEDDLE_SOURCE_DIR "/../shared/data");
}

inline std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace heddle::test
