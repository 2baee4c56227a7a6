#include "monitor/event_file.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <vector>

#include "temporary_folder.h"

namespace heddle {
namespace {

// RFC 3720, appendix B.4 (CRC examples), and the check value of CRC-32C in Ross Williams' model: "123456789".
TEST(EventFile, Crc32cGivesThePublishedValues) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43u);
  std::string counting;
  for (int i = 0; i < 32; ++i) counting.push_back(static_cast<char>(i));
  EXPECT_EQ(crc32c(counting), 0x46DD794Eu);
}

/// Fields of one protocol buffer message, values as they lie in it; written from the format's description, apart from
/// the writer.
struct Field {
  unsigned number;
  std::uint64_t word;  // varint, fixed32 and fixed64
  std::string bytes;
};
std::vector<Field> fields_of(const std::string& message) {
  std::vector<Field> fields;
  std::size_t at = 0;
  const auto varint = [&] {
    std::uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(message.at(at++));
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < message.size()) {
    const auto key = varint();
    Field field{static_cast<unsigned>(key >> 3), 0, {}};
    switch (key & 7) {
      case 0: field.word = varint(); break;
      case 1:
        std::memcpy(&field.word, message.substr(at).data(), 8);
        at += 8;
        break;
      case 2: {
        const auto size = varint();
        field.bytes = message.substr(at, size);
        at += size;
        break;
      }
      case 5:
        std::memcpy(&field.word, message.substr(at).data(), 4);
        at += 4;
        break;
      default: ADD_FAILURE() << "wire type " << (key & 7); return fields;
    }
    fields.push_back(field);
  }
  return fields;
}

std::vector<std::string> records_of(const std::string& file) {
  std::vector<std::string> records;
  const auto masked = [](std::string_view bytes) {
    const auto crc = crc32c(bytes);
    return static_cast<std::uint32_t>(((crc >> 15) | (crc << 17)) + 0xa282ead8u);
  };
  for (std::size_t at = 0; at < file.size();) {
    std::uint64_t size = 0;
    std::uint32_t size_crc = 0, data_crc = 0;
    std::memcpy(&size, file.data() + at, 8);
    std::memcpy(&size_crc, file.data() + at + 8, 4);
    records.push_back(file.substr(at + 12, size));
    std::memcpy(&data_crc, file.data() + at + 12 + size, 4);
    EXPECT_EQ(size_crc, masked(file.substr(at, 8)));
    EXPECT_EQ(data_crc, masked(records.back()));
    at += 16 + size;
  }
  return records;
}

std::string only_file_in(const std::filesystem::path& folder) {
  std::string found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    EXPECT_TRUE(found.empty()) << "more than one file";
    EXPECT_EQ(entry.path().filename().string().rfind("events.out.tfevents.", 0), 0u);
    found = text_of(entry.path());
  }
  return found;
}

TEST(EventFile, HoldsTheVersionAndThenEachScalar) {
  const TemporaryFolder folder;
  EventFile events(folder.path() / "runs", 1);
  const Scalar scalars[] = {
      {"train/loss", 2.5}, {"train/grad_norm", std::numeric_limits<double>::quiet_NaN()}, {"train/learning_rate", 0.1}};
  events.append(300, scalars);
  const auto records = records_of(only_file_in(folder.path() / "runs"));
  ASSERT_EQ(records.size(), 2u);

  const auto version = fields_of(records[0]);
  EXPECT_EQ(version.back().number, 3u);
  EXPECT_EQ(version.back().bytes, "brain.Event:2");

  std::map<std::string, float> values;
  std::uint64_t step = 0;
  for (const auto& field : fields_of(records[1])) {
    if (field.number == 1) {
      EXPECT_GT(std::bit_cast<double>(field.word), 1.6e9);  // seconds since 1970
    }
    if (field.number == 2) step = field.word;
    if (field.number != 5) continue;
    for (const auto& value : fields_of(field.bytes)) {
      ASSERT_EQ(value.number, 1u);
      const auto parts = fields_of(value.bytes);
      ASSERT_EQ(parts.size(), 2u);
      values[parts[0].bytes] = std::bit_cast<float>(static_cast<std::uint32_t>(parts[1].word));
    }
  }
  EXPECT_EQ(step, 300u);
  EXPECT_EQ(values, (std::map<std::string, float>{{"train/loss", 2.5f}, {"train/learning_rate", 0.1f}}));
}

TEST(EventFile, AResumedRunTellsTensorBoardToForgetLaterSteps) {
  const TemporaryFolder folder;
  const EventFile events(folder.path(), 41);
  const auto records = records_of(only_file_in(folder.path()));
  ASSERT_EQ(records.size(), 2u);
  const auto start = fields_of(records[1]);
  ASSERT_EQ(start.size(), 3u);
  EXPECT_EQ(start[1].number, 2u);
  EXPECT_EQ(start[1].word, 41u);
  EXPECT_EQ(start[2].number, 7u);                         // session_log
  EXPECT_EQ(start[2].bytes, std::string("\x08\x01", 2));  // status: START
}

}  // namespace
}  // namespace heddle
