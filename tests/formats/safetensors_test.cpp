#include "formats/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <limits>
#include <vector>

#include "safetensors_files.h"

namespace heddle {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using SafetensorsFileTest = FolderTest;
using SafetensorsWriterTest = FolderTest;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string bytes_in(const SafetensorsFile& file, std::string_view name) {
  const StoredTensor& tensor = *file.find(name);
  std::string bytes(tensor.bytes(), '\0');
  file.read(tensor, 0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_F(SafetensorsFileTest, TensorsAreFoundWithTypeShapeAndBytes) {
  const auto path = write("m.safetensors", raw_safetensors(R"({"__metadata__": {"format": "pt"},
      "b": {"dtype": "I16", "shape": [2, 1], "data_offsets": [4, 8]},
      "scalar": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]},
      "none": {"dtype": "F64", "shape": [0, 9223372036854775807], "data_offsets": [8, 8]}}   )",
                                                           "abcdefgh"));
  const SafetensorsFile file(path);
  ASSERT_EQ(file.tensors().size(), 3U);
  EXPECT_EQ(file.tensors()[0].name, "scalar");
  EXPECT_EQ(file.tensors()[1].name, "b");
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.find("c"), nullptr);
  const StoredTensor& b = *file.find("b");
  EXPECT_EQ(b.dtype, DType::i16);
  EXPECT_EQ(b.shape, (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(b.file, path.string());
  EXPECT_EQ(bytes_in(file, "b"), "efgh");
  EXPECT_EQ(bytes_in(file, "scalar"), "abcd");
  EXPECT_EQ(bytes_in(file, "none"), "");
  std::string part(2, '\0');
  file.read(b, 1, std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(part, "fg");
}

// Bits of an element, of every type that version 0.8 of the safetensors library knows.
TEST_F(SafetensorsFileTest, EveryTypeIsRead) {
  const std::vector<std::pair<std::string, std::size_t>> types = {
      {"F64", 64},    {"F32", 32},        {"F16", 16},        {"BF16", 16},   {"F8_E4M3", 8}, {"F8_E5M2", 8},
      {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4},
      {"C64", 64},    {"I64", 64},        {"I32", 32},        {"I16", 16},    {"I8", 8},      {"U64", 64},
      {"U32", 32},    {"U16", 16},        {"U8", 8},          {"BOOL", 8}};
  for (const auto& [type, bits] : types) {
    const std::size_t bytes = 4 * 2 * bits / 8;
    const SafetensorsFile file(
        write(type, raw_safetensors(R"({"t": {"dtype": ")" + type + R"(", "shape": [4, 2], "data_offsets": [0, )" +
                                        std::to_string(bytes) + "]}}",
                                    std::string(bytes, 'x'))));
    EXPECT_EQ(safetensors_name(file.find("t")->dtype), type);
    EXPECT_EQ(bytes_in(file, "t"), std::string(bytes, 'x'));
    const auto copy = folder / "copy";
    SafetensorsWriter writer(copy, {{"t", file.find("t")->dtype, {4, 2}}}, {});
    writer.append(bytes_of(std::string(bytes, 'x')));
    writer.finish();
    EXPECT_EQ(bytes_in(SafetensorsFile(copy), "t"), std::string(bytes, 'x'));
  }
}

TEST_F(SafetensorsFileTest, AFileWithoutTensorsIsSound) {
  EXPECT_TRUE(SafetensorsFile(write("m", raw_safetensors("{}", ""))).tensors().empty());
}

struct BadFile {
  const char* what;
  std::string bytes;
  std::string expected;  // part of the error
};

std::string with_entry(const std::string& entry, std::size_t data_bytes = 16) {
  return raw_safetensors(R"({"w": )" + entry + "}", std::string(data_bytes, '\0'));
}

const std::vector<BadFile>& bad_files() {
  static const std::string sound = R"({"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]})";
  static const std::vector<BadFile> files = {
      {"empty", "", "0 bytes"},
      {"five bytes", "12345", "5 bytes"},
      {"Git LFS", "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n", "a pointer of Git LFS"},
      {"no header", raw_safetensors("", ""), "header"},
      {"header cut", raw_safetensors("{\"w\"", "", 100), "header length is 100"},
      {"header length 2^63", raw_safetensors("{}", "", std::uint64_t{1} << 63), "header length is 9223372036854775808"},
      {"header length 2^64-1", raw_safetensors("{}", "", ~std::uint64_t{0}), "header length is 18446744073709551615"},
      {"header not JSON", raw_safetensors("{xxxx", ""), "line 1"},
      {"header a list", raw_safetensors("[1, 2]", ""), "not a JSON object"},
      {"header text behind it", raw_safetensors("{} {}", ""), "line 1"},
      {"header deep", raw_safetensors("{\"w\": " + std::string(200000, '['), ""), "nested deeper"},
      {"duplicate tensor", raw_safetensors("{\"w\": " + sound + ", \"w\": " + sound + "}", std::string(16, 'x')),
       "duplicate key \"w\""},
      {"metadata of numbers", raw_safetensors("{\"__metadata__\": {\"a\": 1}}", ""), "__metadata__"},
      {"entry a number", with_entry("3"), "tensor w"},
      {"entry with an unknown key",
       with_entry(R"({"dtype": "F32", "shape": [4], "data_offsets": [0, 16], "strides": [1]})"), "strides"},
      {"no type", with_entry(R"({"shape": [4], "data_offsets": [0, 16]})"), "tensor w: dtype is absent"},
      {"unknown type", with_entry(R"({"dtype": "F33", "shape": [4], "data_offsets": [0, 16]})"),
       "tensor w: dtype is \"F33\""},
      {"no shape", with_entry(R"({"dtype": "F32", "data_offsets": [0, 16]})"), "tensor w: shape is absent"},
      {"shape a text", with_entry(R"({"dtype": "F32", "shape": "2x2", "data_offsets": [0, 16]})"),
       "tensor w: shape is \"2x2\""},
      {"shape negative", with_entry(R"({"dtype": "F32", "shape": [-2, -2], "data_offsets": [0, 16]})"),
       "tensor w: shape is [-2,-2]"},
      {"shape a fraction", with_entry(R"({"dtype": "F32", "shape": [4.0], "data_offsets": [0, 16]})"),
       "tensor w: shape"},
      {"shape beyond 64 bits",
       with_entry(R"({"dtype": "F32", "shape": [36893488147419103236], "data_offsets": [0, 16]})"), "tensor w: shape"},
      {"shape wraps to the right size",
       with_entry(R"({"dtype": "F32", "shape": [4611686018427387908], "data_offsets": [0, 16]})"), "tensor w: shape"},
      {"shape overflows",
       with_entry(R"({"dtype": "F32", "shape": [8589934592, 8589934592, 4], "data_offsets": [0, 16]})"),
       "tensor w: shape"},
      {"no offsets", with_entry(R"({"dtype": "F32", "shape": [4]})"), "tensor w: data_offsets is absent"},
      {"one offset", with_entry(R"({"dtype": "F32", "shape": [4], "data_offsets": [16]})"), "tensor w: data_offsets"},
      {"offsets negative", with_entry(R"({"dtype": "F32", "shape": [4], "data_offsets": [-16, 0]})"),
       "tensor w: data_offsets"},
      {"offsets backwards", with_entry(R"({"dtype": "F32", "shape": [4], "data_offsets": [16, 0]})"),
       "tensor w: data_offsets"},
      {"offsets beyond 64 bits",
       with_entry(R"({"dtype": "F32", "shape": [4], "data_offsets": [0, 18446744073709551632]})"),
       "tensor w: data_offsets"},
      {"bytes do not fit the shape", with_entry(R"({"dtype": "F32", "shape": [5], "data_offsets": [0, 16]})"),
       "tensor w: has 16 bytes"},
      {"data cut", with_entry(sound, 12), "tensor w: its bytes end at 16"},
      {"parts of a byte", with_entry(R"({"dtype": "F4", "shape": [3], "data_offsets": [0, 2]})", 2),
       "tensor w: shape is [3]; expected whole bytes of F4"},
      {"packed bytes do not fit", with_entry(R"({"dtype": "F6_E2M3", "shape": [8], "data_offsets": [0, 8]})", 8),
       "tensor w: has 8 bytes in data_offsets; shape [8] of F6_E2M3 takes 6"},
      {"bits overflow", with_entry(R"({"dtype": "F4", "shape": [4611686018427387904], "data_offsets": [0, 16]})"),
       "tensor w: shape"},
      {"header length just beyond the file", raw_safetensors("{}", "", 3), "header length is 3"},
      {"header length above the limit of the format", raw_safetensors("{}", "", 100'000'001), "header length is"},
      {"two tensors of one range",
       raw_safetensors(
           R"({"v": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]},
               "w": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]}})",
           std::string(8, 'x')),
       "tensor w: its bytes begin at 0 and overlap"},
      {"gap between",
       raw_safetensors(
           R"({"v": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]},
               "w": {"dtype": "U8", "shape": [4], "data_offsets": [8, 12]}})",
           std::string(12, 'x')),
       "tensor w: a gap of 4 bytes lies before it, from 4 to 8"},
      {"a name that is no text for a line", raw_safetensors("{\"a\\nb\": 3}", ""), "tensor a\\x0ab: is 3"},
      {"data left over", with_entry(sound, 20), "4 bytes behind the last tensor"},
      {"data without tensors", raw_safetensors("{}", "x"), "1 bytes behind the last tensor"},
      {"gap at the start", with_entry(R"({"dtype": "F32", "shape": [3], "data_offsets": [4, 16]})"),
       "tensor w: a gap of 4 bytes"},
      {"overlap",
       raw_safetensors(
           R"({"v": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]},
               "w": {"dtype": "U8", "shape": [8], "data_offsets": [4, 12]}})",
           std::string(12, 'x')),
       "tensor w: its bytes begin at 4 and overlap"},
  };
  return files;
}

TEST_F(SafetensorsFileTest, BadFilesAreRefusedByFileTensorAndReason) {
  for (const BadFile& bad : bad_files()) {
    const auto path = write("bad.safetensors", bad.bytes);
    const std::string error = error_of([&] { SafetensorsFile file(path); });
    EXPECT_THAT(error, AllOf(testing::StartsWith(path.string() + ": "), HasSubstr(bad.expected))) << bad.what;
  }
}

TEST_F(SafetensorsFileTest, WhatIsNoRegularFileIsRefused) {
  EXPECT_THAT(error_of([&] { SafetensorsFile file(folder); }), HasSubstr("regular file"));
  EXPECT_THAT(error_of([&] { SafetensorsFile file(folder / "absent"); }), HasSubstr("No such file"));
  EXPECT_THAT(error_of([&] { SafetensorsFile file("/dev/zero"); }), HasSubstr("regular file"));
}

TEST_F(SafetensorsFileTest, AFileThatShrinksIsAnError) {
  const auto path =
      write("m", raw_safetensors(R"({"w": {"dtype": "U8", "shape": [100000], "data_offsets": [0, 100000]}})",
                                 std::string(100000, 'x')));
  const SafetensorsFile file(path);
  const StoredTensor& w = *file.find("w");
  std::filesystem::resize_file(path, 200);
  std::vector<std::byte> target(100000);
  EXPECT_THAT(error_of([&] { file.read(w, 0, target); }),
              AllOf(HasSubstr(path.string()), HasSubstr("has shrunk"), HasSubstr("to 200 bytes")));
}

TEST_F(SafetensorsWriterTest, WritesTheBytesOfTheFormat) {
  const auto path = folder / "m.safetensors";
  SafetensorsWriter writer(path, {{"w", DType::f32, {1, 2}}, {"none", DType::f32, {0}}, {"b", DType::u8, {3}}},
                           {{"format", "pt"}});
  writer.append(bytes_of("abcde"));
  EXPECT_FALSE(std::filesystem::exists(path));
  writer.append(bytes_of("fghxyz"));
  writer.finish();
  std::string header = R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
                       R"("none":{"dtype":"F32","shape":[0],"data_offsets":[8,8]},)"
                       R"("b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})";
  header.append((8 - header.size() % 8) % 8, ' ');
  EXPECT_EQ(contents(path), raw_safetensors(header, "abcdefghxyz"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
  EXPECT_EQ(bytes_in(SafetensorsFile(path), "b"), "xyz");
}

TEST_F(SafetensorsWriterTest, AnUnfinishedFileIsRemovedAndTheOldOneKept) {
  const auto path = write("m.safetensors", "old");
  {
    SafetensorsWriter writer(path, {{"w", DType::f32, {2}}}, {});
    writer.append(bytes_of("abcd"));
    EXPECT_THROW(writer.finish(), Error);
    EXPECT_THROW(writer.append(bytes_of("abcdefgh")), Error);
  }
  EXPECT_EQ(contents(path), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
}

TEST_F(SafetensorsWriterTest, WrongEntriesAreRefused) {
  const auto path = folder / "m";
  const auto error = [&](std::vector<SafetensorsWriter::Entry> entries) {
    return error_of([&] { SafetensorsWriter writer(path, entries, {}); });
  };
  EXPECT_THAT(error({{"w", DType::u8, {3}}, {"w", DType::u8, {3}}}), HasSubstr("tensor w: is given twice"));
  EXPECT_THAT(error({{"b", DType::u8, {3}}, {"w", DType::f32, {3}}}), HasSubstr("tensor w: would begin at byte 3"));
  EXPECT_THAT(error({{"w", DType::f32, {std::numeric_limits<std::int64_t>::max(), 8}}}), HasSubstr("overflows"));
  EXPECT_THAT(error_of([&] { SafetensorsWriter writer(folder / "absent" / "m", {}, {}); }),
              HasSubstr("cannot be created: No such file"));
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

TEST_F(SafetensorsWriterTest, AFullDiskIsAnErrorWithPathAndBytes) {
  // A limit on the size of files stands for the disk: write() then fails in the same way, after a short write.
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, old.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string data(8192, 'x');
  const std::string error = error_of([&] {
    SafetensorsWriter writer(folder / "m.safetensors", {{"w", DType::u8, {8192}}}, {});
    writer.append(bytes_of(data));
  });
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(error, AllOf(HasSubstr("m.safetensors"), HasSubstr("at byte 4096"), HasSubstr("File too large")));
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

}  // namespace
}  // namespace heddle
