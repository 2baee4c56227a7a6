#include "data/data_stream.h"

#include <zlib.h>
#include <zstd.h>

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "data_folder.h"

namespace heddle {
namespace {

using testing::HasSubstr;

std::string gzip(const std::string& text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0'), in = text;
  stream.next_in = reinterpret_cast<Bytef*>(in.data());
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

class DataStreamTest : public DataFolder {
 protected:
  /// All bytes of a file of this content, read `step` at a time.
  std::string read(const std::string& name, const std::string& content, std::size_t step) const {
    const FileReader file(write(name, content));
    DataStream stream(file, compression_of(name));
    std::string out, part(step, '\0');
    for (;;) {
      const std::size_t count = stream.read(part);
      out.append(part, 0, count);
      if (count < step) return out;
    }
  }
  std::string error(const std::string& name, const std::string& content) const {
    try {
      read(name, content, 100);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  }
};

TEST_F(DataStreamTest, GivesTheBytesThatWereCompressed) {
  std::string text;
  for (int i = 0; i < 200000; ++i) text += fmt::format("{} ", i * 7919 % 100003);  // longer than a block
  for (const std::size_t step : {std::size_t{1000}, std::size_t{1} << 20, text.size(), text.size() + 1}) {
    EXPECT_EQ(read("a.jsonl", text, step), text);
    EXPECT_EQ(read("a.jsonl.gz", gzip(text), step), text);
    EXPECT_EQ(read("a.jsonl.zst", zstd(text), step), text);
    EXPECT_EQ(read("a.jsonl.gz", gzip(text) + gzip("") + gzip("end"), step), text + "end");
    EXPECT_EQ(read("a.jsonl.zst", zstd(text) + zstd("") + zstd("end"), step), text + "end");
  }
  EXPECT_EQ(read("a.gz", gzip(""), 10), "");
  EXPECT_EQ(read("a.zst", zstd(""), 10), "");
  EXPECT_EQ(read("a.gz", "", 10), "");
}

TEST_F(DataStreamTest, DamagedDataIsAnErrorThatNamesTheFile) {
  const std::string text = std::string(5000, 'a') + "b", packed = gzip(text), frame = zstd(text);
  EXPECT_THAT(error("a.gz", packed.substr(0, packed.size() - 1)), HasSubstr("a.gz: the gzip data ends early"));
  EXPECT_THAT(error("a.gz", packed.substr(0, 5)), HasSubstr("a.gz: the gzip data ends early"));
  EXPECT_THAT(error("a.gz", "plain text"), HasSubstr("a.gz: the gzip data is damaged"));
  EXPECT_THAT(error("a.gz", packed + "more"), HasSubstr("a.gz: the gzip data is damaged"));
  std::string changed = packed;
  changed[packed.size() - 6] = static_cast<char>(changed[packed.size() - 6] ^ 1);  // of the checksum
  EXPECT_THAT(error("a.gz", changed), HasSubstr("a.gz: the gzip data is damaged"));
  EXPECT_THAT(error("a.zst", frame.substr(0, frame.size() - 1)), HasSubstr("a.zst: the Zstandard data ends early"));
  EXPECT_THAT(error("a.zst", "plain text"), HasSubstr("a.zst: the Zstandard data is damaged"));
}

TEST_F(DataStreamTest, CompressedRowsAreThoseOfTheFileThatWasCompressed) {
  const std::string rows = "{\"text\": \"ab\"}\n\n{\"text\": \"cd\"}\n";
  for (const auto& [name, content] : {std::pair<std::string, std::string>{"r.jsonl", rows},
                                      {"r.jsonl.gz", gzip(rows)},
                                      {"r.jsonl.zst", zstd(rows)}}) {
    const Dataset data = load(content, name);
    ASSERT_EQ(data.num_rows(), 2) << name;
    EXPECT_THAT(data.example(1).input_ids, testing::ElementsAre(3, 4, LetterTokenizer::kEos));
    EXPECT_THAT(data.source(1), testing::EndsWith(name + ":3"));
    EXPECT_EQ(load(name == "r.jsonl" ? "ab" : content, name == "r.jsonl" ? "r.txt" : name).num_rows(),
              name == "r.jsonl" ? 1 : 2);
  }
  EXPECT_EQ(error_of(gzip("{\"text\": \"ab\"}\n{\"text\": 3}\n"), "r.jsonl.gz"),
            "r.jsonl.gz:2: text is 3; expected a string");
}

}  // namespace
}  // namespace heddle
