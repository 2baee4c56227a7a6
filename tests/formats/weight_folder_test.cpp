#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/safetensors.h"
#include "safetensors_files.h"

namespace heddle {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class WeightFolderTest : public FolderTest {
 protected:
  void write_shards() const {
    write("s1.safetensors", raw_safetensors(
                                R"({"a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]},
                "b": {"dtype": "U8", "shape": [1], "data_offsets": [2, 3]}})",
                                "aab"));
    write("s2.safetensors", raw_safetensors(R"({"c": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]}})", "ccc"));
  }
  void write_index(const std::string& map) const {
    write("model.safetensors.index.json", "{\"metadata\": {\"total_size\": 6}, \"weight_map\": " + map + "}");
  }
  std::string error() const {
    return error_of([&] { WeightFolder weights(folder); });
  }
};

TEST_F(WeightFolderTest, OneFileIsRead) {
  write("model.safetensors", raw_safetensors(R"({"a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}})", "xy"));
  const WeightFolder weights(folder);
  EXPECT_TRUE(weights.weight_map().empty());
  ASSERT_EQ(weights.tensors().size(), 1U);
  std::byte second{};
  weights.read(*weights.find("a"), 1, {&second, 1});
  EXPECT_EQ(second, std::byte{'y'});
}

TEST_F(WeightFolderTest, ShardsAreReadAsOne) {
  write_shards();
  write_index(R"({"c": "s2.safetensors", "a": "s1.safetensors", "b": "s1.safetensors"})");
  WeightFolder first(folder);
  const WeightFolder weights = std::move(first);
  ASSERT_EQ(weights.tensors().size(), 3U);
  EXPECT_EQ(weights.weight_map().at("c"), "s2.safetensors");
  EXPECT_EQ(weights.find("d"), nullptr);
  std::byte last{};
  weights.read(*weights.find("c"), 2, {&last, 1});
  EXPECT_EQ(last, std::byte{'c'});
}

TEST_F(WeightFolderTest, ShardsMayBeLinksAsInTheHubsCache) {
  write_shards();
  std::filesystem::create_directories(folder / "snapshot");
  for (const char* name : {"s1.safetensors", "s2.safetensors"})
    std::filesystem::create_symlink(std::string("../") + name, folder / "snapshot" / name);
  write("snapshot/model.safetensors.index.json",
        R"({"weight_map": {"c": "s2.safetensors", "a": "s1.safetensors", "b": "s1.safetensors"}})");
  EXPECT_EQ(WeightFolder(folder / "snapshot").tensors().size(), 3U);
}

TEST_F(WeightFolderTest, AFolderWithoutWeightsIsRefused) {
  EXPECT_THAT(error(), AllOf(HasSubstr(folder.string()), HasSubstr("model.safetensors")));
  write("pytorch_model.bin", "");
  EXPECT_THAT(error(), HasSubstr("pytorch_model.bin is not read"));
  EXPECT_THAT(error_of([&] { WeightFolder weights(folder / "absent"); }), HasSubstr("no folder"));
}

TEST_F(WeightFolderTest, ABadIndexIsRefusedByTensorAndFile) {
  write_shards();
  const std::string outside = (folder / "s2.safetensors").string();
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[]", "weight_map is []"},
      {"{}", "weight_map is {}"},
      {"null", "weight_map is absent"},
      {R"({"a": 1})", "weight_map.a is 1"},
      {R"({"a": ""})", "weight_map.a is \"\""},
      {R"({"a": "../s1.safetensors"})", "weight_map.a is \"../s1.safetensors\", outside the folder"},
      {R"({"a": "x/../../s1.safetensors"})", "outside the folder"},
      {R"({"a": ")" + outside + R"("})", "outside the folder"},
      {R"({"a": "config.json"})", "expected a .safetensors file"},
      {R"({"a": "s1.safetensors", "a": "s1.safetensors"})", "duplicate key \"a\""},
      {R"({"c": "s3.safetensors", "a": "s1.safetensors", "b": "s1.safetensors"})",
       "weight_map names s3.safetensors, which is not there"},
      {R"({"c": "s1.safetensors", "a": "s1.safetensors", "b": "s1.safetensors"})",
       "weight_map.c is s1.safetensors; that file does not hold the tensor"},
      {R"({"c": "s2.safetensors", "a": "s1.safetensors", "b": "s1.safetensors", "d": "s1.safetensors"})",
       "weight_map.d is s1.safetensors; that file does not hold the tensor"},
      {R"({"c": "s2.safetensors", "a": "s1.safetensors"})", "weight_map lacks tensor b"},
  };
  for (const auto& [map, expected] : cases) {
    write_index(map);
    EXPECT_THAT(error(), HasSubstr(expected)) << map;
  }
  write("model.safetensors.index.json", "{");
  EXPECT_THAT(error(), HasSubstr("model.safetensors.index.json: line 1"));
}

TEST_F(WeightFolderTest, ATensorInTwoShardsIsRefused) {
  write_shards();
  write("s2.safetensors", raw_safetensors(R"({"a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}})", "aa"));
  write_index(R"({"a": "s2.safetensors", "b": "s1.safetensors"})");
  EXPECT_THAT(error(), AllOf(HasSubstr("tensor a"), HasSubstr("s1.safetensors too")));
}

}  // namespace
}  // namespace heddle
