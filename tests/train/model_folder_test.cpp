#include "train/model_folder.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoint/save.h"
#include "formats/files.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

// A model in a shared, read-only folder: the run that writes to the same output_dir again has to replace its copies.
TEST(ModelFolder, CopiesOfReadOnlyFilesCanBeWrittenOver) {
  const fs::path folder = fs::path(testing::TempDir()) / "model_folder_test";
  fs::remove_all(folder);
  make_folder(folder / "model");
  write_text_file(folder / "model/tokenizer.json", "{}");
  fs::permissions(folder / "model/tokenizer.json", fs::perms::owner_read);
  const std::vector<KeptFile> files = {{"tokenizer.json", folder / "model/tokenizer.json", ""}};
  for (int run = 0; run < 2; ++run) {
    write_model_files(folder / "out", files);
    EXPECT_EQ(read_text_file(folder / "out/tokenizer.json"), "{}");
    const auto permissions = fs::status(folder / "out/tokenizer.json").permissions();
    EXPECT_NE(permissions & fs::perms::owner_write, fs::perms::none);
  }
  fs::remove_all(folder);
}

}  // namespace
}  // namespace heddle
