#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "base/error.h"
#include "data/dataset.h"
#include "letter_tokenizer.h"

namespace heddle {

/// A folder of its own for each test, with what most tests of data sets need.
class DataFolder : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "heddle_data.XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    options_.max_length = 8;
    options_.vocab_size = LetterTokenizer::kVocab;
    options_.packing = false;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, std::string_view content) const {
    const auto path = folder_ / name;
    std::ofstream(path, std::ios::binary) << content;
    return path.string();
  }
  /// The data set of one file of this content.
  Dataset load(std::string_view content, const std::string& name = "rows.jsonl") {
    options_.files = {{write(name, content), 1.0}};
    return Dataset::load(options_, &tokenizer_);
  }
  /// The text of the error that this content gives, the folder's path cut off.
  std::string error_of(std::string_view content, const std::string& name = "rows.jsonl") {
    try {
      load(content, name);
    } catch (const Error& error) {
      std::string text = error.what();
      const std::string prefix = folder_.string() + "/";
      while (text.find(prefix) != std::string::npos) text.erase(text.find(prefix), prefix.size());
      return text;
    }
    return "no error";
  }

  std::filesystem::path folder_;
  DatasetOptions options_;
  LetterTokenizer tokenizer_;
};

}  // namespace heddle
