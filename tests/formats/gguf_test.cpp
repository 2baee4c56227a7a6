#include "formats/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <limits>

#include "formats/gguf_files.h"
#include "formats/safetensors_files.h"

namespace heddle {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

class Gguf : public FolderTest {};

/// A tensor of 8 floats, 0 to 7.
RawGguf::Tensor eight(const std::string& name) {
  std::string data;
  for (int i = 0; i < 8; ++i) data += raw(static_cast<float>(i));
  return {name, {4, 2}, 0, data};
}

std::vector<float> floats_of(const GgufFile& file, const std::string& name) {
  const StoredTensor* tensor = file.find(name);
  std::vector<float> values(tensor->bytes() / sizeof(float));
  file.read(*tensor, 0, std::as_writable_bytes(std::span(values)));
  return values;
}

TEST_F(Gguf, HoldsTensorsByNameWithTheOutermostDimensionFirst) {
  RawGguf raw_file;
  raw_file.tensors = {eight("b"), eight("a")};
  const GgufFile file(write("a.gguf", raw_file.bytes()));
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.tensors()[0].name, "b");
  EXPECT_THAT(file.tensors()[0].shape, ElementsAre(2, 4));
  EXPECT_EQ(file.find("a"), &file.tensors()[1]);
  EXPECT_EQ(file.find("c"), nullptr);
  EXPECT_THAT(floats_of(file, "a"), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST_F(Gguf, ReadsEveryKindOfValueInEveryWidth) {
  RawGguf raw_file;
  raw_file.version = 2;
  raw_file.metadata = {{"u8", raw_value(0, std::uint8_t{200})},
                       {"i8", raw_value(1, std::int8_t{-100})},
                       {"u16", raw_value(2, std::uint16_t{60000})},
                       {"i16", raw_value(3, std::int16_t{-30000})},
                       {"u32", raw_value(4, std::uint32_t{4000000000u})},
                       {"i32", raw_value(5, std::int32_t{-2000000000})},
                       {"f32", raw_value(6, 0.1f)},
                       {"bool", raw_value(7, std::uint8_t{1})},
                       {"text", raw_text_value("h\xc3\xa9")},
                       {"u64", raw_value(10, std::numeric_limits<std::uint64_t>::max())},
                       {"i64", raw_value(11, std::numeric_limits<std::int64_t>::min())},
                       {"f64", raw_value(12, 0.1)},
                       {"list.i16", raw_array(3, 2) + raw(std::int16_t{-1}) + raw(std::int16_t{2})},
                       {"list.f32", raw_array(6, 1) + raw(0.5f)},
                       {"list.bool", raw_array(7, 2) + raw(std::uint8_t{1}) + raw(std::uint8_t{0})},
                       {"list.text", raw_array(8, 2) + raw_text("a") + raw_text("")}};
  const GgufFile file(write("a.gguf", raw_file.bytes()));
  const GgufMetadata& all = file.metadata();
  EXPECT_EQ(file.version(), 2u);
  EXPECT_EQ(std::get<std::uint64_t>(*all.find("u8")), 200u);
  EXPECT_EQ(std::get<std::int64_t>(*all.find("i8")), -100);
  EXPECT_EQ(all.integer("u16", 0, 70000), 60000);
  EXPECT_EQ(all.integer("i16", -40000, 0), -30000);
  EXPECT_EQ(all.integer("u32", 0, INT64_MAX), 4000000000);
  EXPECT_EQ(all.integer_or("i32", 0, INT64_MIN, 0), -2000000000);
  EXPECT_EQ(all.integer_or("absent", 7, 0, 10), 7);
  EXPECT_EQ(all.number("f32"), double{0.1f});
  EXPECT_EQ(all.number("f64"), 0.1);
  EXPECT_EQ(all.number("u8"), 200.0);
  EXPECT_TRUE(all.boolean_or("bool", false));
  EXPECT_EQ(all.text("text"), "h\xc3\xa9");
  EXPECT_EQ(std::get<std::uint64_t>(*all.find("u64")), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(std::get<std::int64_t>(*all.find("i64")), std::numeric_limits<std::int64_t>::min());
  EXPECT_THAT(*all.integers("list.i16"), ElementsAre(-1, 2));
  EXPECT_THAT(*all.numbers("list.f32"), ElementsAre(0.5));
  EXPECT_THAT(*all.booleans("list.bool"), ElementsAre(true, false));
  EXPECT_THAT(*all.texts("list.text"), ElementsAre("a", ""));
  EXPECT_EQ(all.entries().front().first, "u8");
  EXPECT_EQ(all.entries().size(), raw_file.metadata.size());
}

TEST_F(Gguf, GettersNameFileKeyAndWhatTheyExpect) {
  RawGguf raw_file;
  raw_file.metadata = {{"n", raw_value(4, std::uint32_t{7})}, {"t", raw_text_value("seven")}};
  const GgufFile file(write("a.gguf", raw_file.bytes()));
  const GgufMetadata& all = file.metadata();
  const std::string path = file.path();
  EXPECT_EQ(error_of([&] { all.integer("t", 0, 9); }), path + ": t is \"seven\"; expected a whole number from 0 to 9");
  EXPECT_EQ(error_of([&] { all.integer("n", 0, 6); }), path + ": n is 7; expected a whole number from 0 to 6");
  EXPECT_EQ(error_of([&] { all.integer("m", 0, 6); }), path + ": m is absent; expected a whole number from 0 to 6");
  EXPECT_EQ(error_of([&] { all.text("n"); }), path + ": n is 7; expected a text");
  EXPECT_EQ(error_of([&] { all.texts("n"); }), path + ": n is 7; expected an array of texts");
  EXPECT_EQ(error_of([&] { all.number("t"); }), path + ": t is \"seven\"; expected a finite number");
}

TEST_F(Gguf, ListsTypesThatItCannotDecode) {
  RawGguf raw_file;
  raw_file.tensors = {{"w", {256, 2}, 16, std::string(132, 'x')}};
  const GgufFile file(write("a.gguf", raw_file.bytes()));
  EXPECT_EQ(safetensors_name(file.tensors()[0].dtype), "IQ2_XXS");
  EXPECT_FALSE(is_decodable(file.tensors()[0].dtype));
  EXPECT_EQ(file.tensors()[0].bytes(), 132u);
}

struct Damage {
  const char* name;
  std::function<void(RawGguf&)> make;
  const char* error;
};

const Damage kDamages[] = {
    {"Magic", [](RawGguf& f) { f.magic = "GGML"; }, "begins with GGML; expected GGUF"},
    {"Version", [](RawGguf& f) { f.version = 1; }, "has version 1 of GGUF; expected 2 or 3"},
    {"BigEndian", [](RawGguf& f) { f.version = 3u << 24; }, "big-endian"},
    {"TensorCount", [](RawGguf& f) { f.tensor_count = std::int64_t{1} << 60; }, "tensors at byte 24"},
    {"KeyCount", [](RawGguf& f) { f.key_count = std::int64_t{1} << 60; }, "keys at byte 24"},
    {"ValueKind",
     [](RawGguf& f) {
       f.metadata = {{"x", raw_value(13, 1)}};
     },
     "x is of kind 13; expected 0 to 12"},
    {"ArrayKind",
     [](RawGguf& f) {
       f.metadata = {{"x", raw_array(99, 1)}};
     },
     "x is an array of kind 99"},
    {"ArrayOfArrays",
     [](RawGguf& f) {
       f.metadata = {{"x", raw_array(9, 1) + raw_array(4, 0)}};
     },
     "x is an array of arrays"},
    {"ArrayLength",
     [](RawGguf& f) {
       f.metadata = {{"x", raw_array(8, 1u << 30)}};
     },
     "x at byte"},
    {"TextLength",
     [](RawGguf& f) {
       f.metadata = {{"x", raw_value(8, std::uint64_t{1} << 62)}};
     },
     "a text of 4611686018427387904 bytes"},
    {"TruthValue",
     [](RawGguf& f) {
       f.metadata = {{"x", raw_value(7, std::uint8_t{2})}};
     },
     "x is a truth value of 2; expected 0 or 1"},
    {"LargeNumberInArray",
     [](RawGguf& f) {
       f.metadata = {{"x", raw_array(10, 1) + raw(std::uint64_t{1} << 63)}};
     },
     "x holds 9223372036854775808"},
    {"KeyTwice",
     [](RawGguf& f) {
       f.metadata = {{"x", raw_value(4, 1)}, {"x", raw_value(4, 1)}};
     },
     "x is given twice"},
    {"NoKey",
     [](RawGguf& f) {
       f.metadata = {{"", raw_value(4, 1)}};
     },
     "has no name"},
    {"KeyNotUtf8",
     [](RawGguf& f) {
       f.metadata = {{"\xff", raw_value(4, 1)}};
     },
     "key \\xff is not UTF-8"},
    {"KeyTooLong",
     [](RawGguf& f) {
       f.metadata = {{std::string(70000, 'k'), raw_value(4, 1)}};
     },
     "has 70000 bytes; expected at most 65535"},
    {"AlignmentZero",
     [](RawGguf& f) {
       f.metadata = {{"general.alignment", raw_value(4, 0)}};
     },
     "general.alignment is 0; expected a whole number from 1"},
    {"AlignmentThree",
     [](RawGguf& f) {
       f.metadata = {{"general.alignment", raw_value(4, 3)}};
     },
     "a power of two"},
    {"Type", [](RawGguf& f) { f.tensors[0].type = 31; }, "tensor a: has type 31, which is none of ggml's"},
    {"Dimensions",
     [](RawGguf& f) {
       f.tensors[0].dimensions = {1, 1, 1, 1, 1};
     },
     "tensor a: has 5 dimensions"},
    {"Overflow",
     [](RawGguf& f) {
       f.tensors[0].dimensions = {1u << 31, 1u << 31, 4};
     },
     "expected at most 2^56 elements"},
    {"BitsOverflow", [](RawGguf& f) { f.tensors[0].type = 28, f.tensors[0].dimensions = {std::uint64_t{1} << 58}; },
     "expected at most 2^56 elements"},
    {"Extent", [](RawGguf& f) { f.tensors[0].dimensions = {std::uint64_t{1} << 63}; }, "expected below 2^63"},
    {"RaggedBlock",
     [](RawGguf& f) {
       f.tensors[0] = {"a", {33}, 8, std::string(68, 'x')};
     },
     "tensor a: has rows of 33 elements; Q8_0 comes in blocks of 32"},
    // The whole is a multiple of the block, its rows are not.
    {"RaggedRows",
     [](RawGguf& f) {
       f.tensors[0] = {"a", {16, 2}, 8, std::string(34, 'x')};
     },
     "has rows of 16"},
    {"Unaligned", [](RawGguf& f) { f.tensors[1].offset = 33; }, "tensor b: begins at 33 behind the head"},
    {"Overlap", [](RawGguf& f) { f.tensors[1].offset = 0; }, "tensor b: its bytes begin at 0 and overlap"},
    {"Beyond", [](RawGguf& f) { f.tensors[1].offset = std::int64_t{1} << 40; }, "tensor b: its bytes end at"},
    {"NameTwice", [](RawGguf& f) { f.tensors[1].name = "a"; }, "tensor a is given twice"},
    {"NoName", [](RawGguf& f) { f.tensors[1].name = ""; }, "has no name"},
};

class GgufDamaged : public FolderTest, public testing::WithParamInterface<Damage> {};

TEST_P(GgufDamaged, IsRefused) {
  RawGguf file;
  file.metadata = {{"general.name", raw_text_value("made for a test")}};
  file.tensors = {eight("a"), eight("b")};
  ASSERT_EQ(GgufFile(write("sound.gguf", file.bytes())).tensors().size(), 2u);
  GetParam().make(file);
  const auto path = write("damaged.gguf", file.bytes());
  const std::string error = error_of([&] { GgufFile{path}; });
  EXPECT_THAT(error, StartsWith(path.string() + ": "));
  EXPECT_THAT(error, HasSubstr(GetParam().error));
}

INSTANTIATE_TEST_SUITE_P(Ways, GgufDamaged, testing::ValuesIn(kDamages),
                         [](const auto& damage) { return damage.param.name; });

TEST_F(Gguf, CutAnywhereIsRefused) {
  RawGguf file;
  file.metadata = {{"s", raw_text_value("text")}, {"l", raw_array(8, 2) + raw_text("a") + raw_text("bc")}};
  file.tensors = {eight("a")};
  const std::string whole = file.bytes();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto path = write("cut.gguf", whole.substr(0, size));
    ASSERT_THAT(error_of([&] { GgufFile{path}; }), StartsWith(path.string() + ": ")) << size;
  }
}

TEST_F(Gguf, WithoutTensorsMayEndWithItsHead) {
  const GgufFile file(write("a.gguf", "GGUF" + raw(std::uint32_t{3}) + raw(std::uint64_t{0}) + raw(std::uint64_t{0})));
  EXPECT_TRUE(file.tensors().empty());
}

GgufMetadata written_metadata() {
  GgufMetadata all("out.gguf");
  all.add("general.architecture", std::string("llama"));
  all.add("small", std::uint64_t{7});
  all.add("large", std::uint64_t{1} << 40);
  all.add("negative", std::int64_t{-7});
  all.add("number", 0.5);
  all.add("truth", true);
  all.add("integers", std::vector<std::int64_t>{1, -2});
  all.add("wide", std::vector<std::int64_t>{1, std::int64_t{1} << 40});
  all.add("numbers", std::vector<double>{0.25, -1e3});
  all.add("truths", std::vector<bool>{true, false});
  all.add("texts", std::vector<std::string>{"", "b\n"});
  return all;
}

TEST_F(Gguf, WrittenHoldsWhatWasGiven) {
  const GgufMetadata metadata = written_metadata();
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  {
    GgufWriter writer(folder / "out.gguf", metadata,
                      {{"m", DType::f32, {2, 3}}, {"q", DType::q8_0, {1, 32}}, {"v", DType::bf16, {3}}});
    const auto bytes = std::as_bytes(std::span(values));
    writer.append(bytes.first(5));
    writer.append(bytes.subspan(5));
    writer.append(std::vector<std::byte>(34, std::byte{1}));
    EXPECT_FALSE(std::filesystem::exists(folder / "out.gguf"));
    writer.append(std::vector<std::byte>(6, std::byte{2}));
    writer.finish();
  }
  const GgufFile file(folder / "out.gguf");
  EXPECT_EQ(file.metadata().entries(), metadata.entries());
  EXPECT_THAT(file.find("m")->shape, ElementsAre(2, 3));
  EXPECT_EQ(floats_of(file, "m"), values);
  EXPECT_EQ(file.find("q")->begin, 32u);
  EXPECT_EQ(file.find("q")->bytes(), 34u);
  EXPECT_EQ(file.find("v")->dtype, DType::bf16);
  EXPECT_EQ(std::filesystem::file_size(folder / "out.gguf") % 32, 0u);
}

TEST_F(Gguf, UnfinishedLeavesNothing) {
  { GgufWriter writer(folder / "out.gguf", written_metadata(), {{"m", DType::f32, {2, 3}}}); }
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

TEST_F(Gguf, WriterRefusesWhatTheFormatCannotHold) {
  const auto error = [&](std::vector<GgufWriter::Entry> entries) {
    return error_of([&] { GgufWriter(folder / "out.gguf", GgufMetadata("out.gguf"), entries); });
  };
  EXPECT_THAT(error({{"m", DType::f8_e4m3, {4}}}), HasSubstr("tensor m has type F8_E4M3, which GGUF lacks"));
  EXPECT_THAT(error({{"m", DType::q4_0, {4, 40}}}), HasSubstr("has rows of 40 elements; Q4_0 comes in blocks of 32"));
  EXPECT_THAT(error({{"m", DType::f32, {4}}, {"m", DType::f32, {4}}}), HasSubstr("tensor m is given twice"));
  EXPECT_THAT(error({{"m", DType::f32, {1, 1, 1, 1, 1}}}), HasSubstr("has 5 dimensions"));
}

TEST(GgufGolden, FileThatOthersMadeHoldsWhatTheyPutIn) {
  const char* data = std::getenv("HEDDLE_DATA");
  const std::filesystem::path path =
      std::filesystem::path(data != nullptr ? data : HEDDLE_SOURCE_DIR "/../shared/data") /
      "models/stories260K/stories260K-q8_0.gguf";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is absent";
  const GgufFile file(path);
  // The model's published sizes: 5 layers of width 64, 512 tokens.
  EXPECT_EQ(file.metadata().text("general.architecture"), "llama");
  EXPECT_EQ(file.metadata().integer("llama.block_count", 0, 100), 5);
  EXPECT_EQ(file.metadata().texts("tokenizer.ggml.tokens")->size(), 512u);
  EXPECT_EQ(file.tensors().size(), 48u);
  EXPECT_THAT(file.find("token_embd.weight")->shape, ElementsAre(512, 64));
}

}  // namespace
}  // namespace heddle
