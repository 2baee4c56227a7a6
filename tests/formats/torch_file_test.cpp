#include "formats/torch_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "formats/pickle.h"
#include "formats/safetensors.h"
#include "torch_files.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::ThrowsMessage;

fs::path golden(const std::string& name) {
  const char* data = std::getenv("HEDDLE_DATA");
  return fs::path(data != nullptr ? data : HEDDLE_SOURCE_DIR "/../shared/data") / "golden/finetune/torch_files" / name;
}

std::vector<std::byte> bytes_of(const TorchFile& file, const TorchTensor& tensor) {
  std::vector<std::byte> all;
  file.read(tensor, [&](std::span<const std::byte> bytes) { all.insert(all.end(), bytes.begin(), bytes.end()); });
  return all;
}

class Golden : public testing::TestWithParam<const char*> {};

// torch.save wrote the .bin files, safetensors.torch the same tensors beside them.
TEST_P(Golden, TensorsAreThoseThatSafetensorsHas) {
  const std::string name = GetParam();
  if (!fs::exists(golden(name + ".safetensors"))) GTEST_SKIP() << golden(name + ".safetensors") << " is absent";
  const SafetensorsFile expected(golden(name + ".safetensors"));
  for (const char* form : {"-zip.bin", "-legacy.bin"}) {
    const TorchFile file(golden(name + form));
    ASSERT_EQ(file.tensors().size(), expected.tensors().size());
    for (const auto& tensor : file.tensors()) {
      const StoredTensor* stored = expected.find(tensor.name);
      ASSERT_NE(stored, nullptr) << tensor.name;
      EXPECT_EQ(tensor.dtype, stored->dtype) << tensor.name;
      EXPECT_EQ(tensor.shape, stored->shape) << tensor.name;
      std::vector<std::byte> wanted(stored->end - stored->begin);
      expected.read(*stored, 0, wanted);
      EXPECT_EQ(bytes_of(file, tensor), wanted) << name << form << ": " << tensor.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Torch, Golden, testing::Values("types", "views", "tied", "state_dict", "parameters"));

TEST(TorchFile, WhatIsNoDictionaryOfTensorsIsRefused) {
  for (const auto& [name, said] :
       {std::pair{"refused-complex.bin", "ComplexFloatStorage"}, std::pair{"refused-module.bin", "torch.nn.modules"}}) {
    if (!fs::exists(golden(name))) GTEST_SKIP() << golden(name) << " is absent";
    const auto open = [file = name] { const TorchFile opened(golden(file)); };
    EXPECT_THAT(open, ThrowsMessage<Error>(testing::AllOf(HasSubstr(name), HasSubstr(said))));
  }
}

std::string error_of_file(const fs::path& path) {
  try {
    TorchFile(path).verify();
  } catch (const Error& e) {
    return e.what();
  }
  return "none";
}

TEST(TorchFile, AFlippedBitIsFoundWhereTheFileHasChecksums) {
  const fs::path path = fs::temp_directory_path() / ("heddle-crc-" + std::to_string(::getpid()) + ".bin");
  torch_files::TorchArchive archive;
  const std::string value =
      torch_files::dict({{"a", archive.flat({1.5f, 2.5f})}, {"b", archive.flat({3.5f, 4.5f, 5.5f})}});
  for (const bool has_crc : {true, false}) {  // torch.serialization.set_crc32_options
    const std::string whole = archive.bytes(value, has_crc);
    const auto flip = [&](std::string_view near) {
      std::string bytes = whole;
      bytes[bytes.find(near)] ^= 1;
      std::ofstream(path, std::ios::binary) << bytes;
      return error_of_file(path);
    };
    std::ofstream(path, std::ios::binary) << whole;
    EXPECT_EQ(error_of_file(path), "none");
    const float second = 4.5f;
    const std::string in_weights(reinterpret_cast<const char*>(&second), 4);
    if (has_crc) {
      EXPECT_THAT(flip(in_weights), testing::AllOf(HasSubstr(path.filename().string()), HasSubstr("data/1")));
      EXPECT_THAT(flip("cpu"), testing::AllOf(HasSubstr("data.pkl"), HasSubstr("CRC-32")));
    } else {
      EXPECT_EQ(flip(in_weights), "none");
    }
  }
  fs::remove(path);
}

bool is_dict(std::string_view name) { return name == "collections OrderedDict"; }

Pickle parse(std::string_view text) { return {text, "file.bin", is_dict}; }

std::string error_of(std::string_view text) {
  try {
    parse(text);
  } catch (const Error& e) {
    return e.what();
  }
  return "none";
}

TEST(PickleData, ValuesAreReadByTheirOpcodes) {
  // pickle.dumps({"a": [1, -2, True, None], "b": (3,)}, protocol=2)
  using std::string_view_literals::operator""sv;
  const Pickle pickle = parse(
      "\x80\x02}q\x00(X\x01\x00\x00\x00"
      "aq\x01]q\x02(K\x01J\xfe\xff\xff\xff\x88NeX\x01\x00\x00\x00"
      "bq\x03K\x03\x85q\x04u."sv);
  ASSERT_EQ(pickle.root().kind, Pickle::Kind::dict);
  ASSERT_EQ(pickle.root().items.size(), 4);
  EXPECT_EQ(pickle.at(pickle.root().items[0]).text, "a");
  const auto& list = pickle.at(pickle.root().items[1]);
  ASSERT_EQ(list.items.size(), 4);
  EXPECT_EQ(pickle.at(list.items[0]).number, 1);
  EXPECT_EQ(pickle.at(list.items[1]).number, -2);
  EXPECT_EQ(pickle.at(list.items[2]).kind, Pickle::Kind::boolean);
  EXPECT_EQ(pickle.at(list.items[3]).kind, Pickle::Kind::none);
  EXPECT_EQ(pickle.at(pickle.at(pickle.root().items[3]).items[0]).number, 3);
}

TEST(PickleData, ObjectsOfAllowedClassesAreWrittenDown) {
  const std::function<bool(std::string_view)> all = [](std::string_view) { return true; };
  // pickle.dumps of an object whose __dict__ is {"scale": 7}, protocol 2
  const Pickle pickle(
      "\x80\x02" + torch_files::object(torch_files::global("m", "Scaler"), torch_files::dict({{"scale", "K\x07"}})) +
          ".",
      "file.bin", all);
  ASSERT_EQ(pickle.root().kind, Pickle::Kind::record);
  ASSERT_EQ(pickle.root().items.size(), 3);
  EXPECT_EQ(pickle.at(pickle.root().items[0]).text, "m Scaler");
  const auto& state = pickle.at(pickle.root().items[2]);
  ASSERT_NE(pickle.find(state, "scale"), nullptr);
  EXPECT_EQ(pickle.find(state, "scale")->number, 7);
  EXPECT_EQ(pickle.find(state, "other"), nullptr);
  EXPECT_EQ(pickle.find(pickle.root(), "scale"), nullptr);
  EXPECT_THROW(Pickle("\x80\x02K\x01)\x81.", "file.bin", all), Error);  // of no class
  EXPECT_THROW(Pickle("\x80\x02K\x01}b.", "file.bin", all), Error);     // a state of a number
}

TEST(PickleData, NamesThatAreNotAllowedAreRefusedWhereTheyStand) {
  using std::string_view_literals::operator""sv;
  EXPECT_THAT(error_of("\x80\x02"
                       "cos\nsystem\n(X\x04\x00\x00\x00touctR."sv),
              HasSubstr("os system"));
  EXPECT_THAT(error_of("\x80\x04\x8c\x02os\x8c\x06system\x93)R."sv), HasSubstr("os system"));
}

TEST(PickleData, WhatOnlyProgramsNeedIsRefused) {
  using std::string_view_literals::operator""sv;
  for (const auto text : {"\x80\x02(X\x01\x00\x00\x00xios\nsystem\n."sv, "\x80\x02\x82\x01."sv, "\x80\x02(o."sv})
    EXPECT_THAT(error_of(text), testing::AllOf(HasSubstr("file.bin"), HasSubstr("opcode"))) << text;
}

TEST(PickleData, WhatIsMalformedIsRefused) {
  using std::string_view_literals::operator""sv;
  for (const auto text : {""sv, "\x80\x02"sv, "\x80\x63."sv, "\x80\x02."sv, "\x80\x02h\x07."sv, "\x80\x02t."sv,
                          "\x80\x02X\xff\xff\xff\x7f."sv, "\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f."sv,
                          "\x80\x02}(K\x01u."sv, "\x80\x02K\x01(K\x01u."sv, "hello"sv}) {
    EXPECT_THAT(error_of(text), HasSubstr("file.bin: is no pickle of tensors"));
  }
}

TEST(PickleData, DeepNestingAndSelfContainmentCostNoMore) {
  const std::string deep = "\x80\x02" + std::string(200000, ']') + std::string(199999, 'a') + ".";
  EXPECT_EQ(parse(deep).root().kind, Pickle::Kind::list);
  using std::string_view_literals::operator""sv;
  const Pickle self = parse(
      "\x80\x02]q\x00h\x00"
      "a."sv);
  EXPECT_EQ(self.at(self.root().items[0]).items, self.root().items);
}

}  // namespace
}  // namespace heddle
