#include "checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "checkpoint/save.h"
#include "checkpoint/unchanged.h"
#include "comm/job.h"
#include "formats/files.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::vector<float> numbers(std::size_t count, float first) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

/// Of the order of 1e-2, their 23 bits of mantissa at random.
std::vector<float> random_numbers(std::size_t count) {
  std::vector<float> values(count);
  std::uint64_t random = 1;
  for (float& value : values) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    const std::uint32_t bits = 0x3C000000u | static_cast<std::uint32_t>(random >> 41);
    std::memcpy(&value, &bits, sizeof bits);
  }
  return values;
}

class CheckpointFolder : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "heddle-checkpoint-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    std::ofstream(folder_ / "config.json") << "{\"hidden_size\": 64}";
  }
  void TearDown() override { fs::remove_all(folder_); }

  /// Two tensors of 6 x 7 elements, cut into `ranks` pieces of about the same size.
  fs::path save(std::int64_t step, int ranks = 1, const SavedMemory& memory = {}) {
    const std::array<KeptFile, 1> files = {{{"config.json", folder_ / "config.json", ""}}};
    fs::path path;
    run_ranks(ranks, [&](Communicator& communicator) {
      CheckpointSave save(folder_, step, pieces_of(communicator), Json{{"step", step}}, {files.begin(), files.end()},
                          communicator, memory);
      save.write();
      const auto written = save.commit();
      if (communicator.rank() == 0) path = written;
      return 0;
    });
    return path;
  }

  std::vector<CheckpointPiece> pieces_of(const Communicator& communicator) {
    const std::int64_t begin = 42 * communicator.rank() / communicator.size();
    const std::int64_t end = 42 * (communicator.rank() + 1) / communicator.size();
    const auto part = [&](const std::vector<float>& values) {
      return std::as_bytes(
          std::span(values).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)));
    };
    return {{"weights/a", DType::f32, {6, 7}, begin, end, part(values_)},
            {"exp_avg/a", DType::f32, {6, 7}, begin, end, part(moments_)}};
  }

  static std::vector<float> read(const Checkpoint& checkpoint, const std::string& name, std::int64_t begin = 0,
                                 std::int64_t end = 42) {
    std::vector<float> values(static_cast<std::size_t>(end - begin));
    checkpoint.read(name, begin, end, DType::f32, std::as_writable_bytes(std::span(values)));
    return values;
  }

  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_)) found.push_back(entry.path().filename().string());
    return found;
  }

  std::optional<Checkpoint> newest() const { return newest_checkpoint(folder_, *alone()); }

  fs::path folder_;
  std::vector<float> values_ = numbers(42, 1), moments_ = numbers(42, -100);
};

TEST_F(CheckpointFolder, ReadsBackWhatWasSaved) {
  const fs::path path = save(7);
  EXPECT_EQ(path, folder_ / "checkpoint-7");
  const Checkpoint checkpoint(path);
  EXPECT_EQ(checkpoint.step(), 7);
  EXPECT_EQ(checkpoint.state()["step"], 7);
  EXPECT_EQ(read(checkpoint, "weights/a"), values_);
  EXPECT_EQ(read(checkpoint, "exp_avg/a"), moments_);
  EXPECT_THAT(checkpoint.tensors().at("weights/a").shape, testing::ElementsAre(6, 7));
  EXPECT_EQ(read_text_file(path / "config.json"), "{\"hidden_size\": 64}");
}

TEST_F(CheckpointFolder, AnyRangeIsReadFromThePiecesOfAnyNumberOfRanks) {
  for (const int ranks : {1, 2, 3, 5}) {
    const Checkpoint checkpoint(save(ranks, ranks));
    for (const auto& [begin, end] : {std::pair{0, 42}, {0, 1}, {41, 42}, {13, 15}, {5, 40}, {21, 21}}) {
      EXPECT_EQ(read(checkpoint, "weights/a", begin, end), std::vector(values_.begin() + begin, values_.begin() + end))
          << ranks << " ranks, " << begin << " to " << end;
    }
  }
}

TEST_F(CheckpointFolder, ReadsOnlyTheRangeThatIsAskedFor) {
  const Checkpoint checkpoint(save(3, 3));
  fs::remove(folder_ / "checkpoint-3" / "state-00001.safetensors");
  fs::resize_file(folder_ / "checkpoint-3" / "state-00002.safetensors", 10);
  EXPECT_EQ(read(checkpoint, "weights/a", 2, 14), numbers(12, 3));
  EXPECT_THROW(read(checkpoint, "weights/a", 2, 42), Error);
}

TEST_F(CheckpointFolder, WeightsAreRoundedToTheTypeOfTheBuffer) {
  values_[20] = 1.00390625f;  // halfway between two of bfloat16: to the even one
  values_[21] = 1.01171875f;
  const Checkpoint checkpoint(save(1, 2));
  std::array<BFloat16, 4> rounded;
  checkpoint.read("weights/a", 19, 23, DType::bf16, std::as_writable_bytes(std::span(rounded)));
  EXPECT_EQ(static_cast<float>(rounded[0]), 20.0f);
  EXPECT_EQ(static_cast<float>(rounded[1]), 1.0f);
  EXPECT_EQ(static_cast<float>(rounded[2]), 1.015625f);
  EXPECT_EQ(static_cast<float>(rounded[3]), 23.0f);
}

TEST_F(CheckpointFolder, NothingIsLeftBesideIt) {
  save(7, 2);
  EXPECT_THAT(names(), testing::UnorderedElementsAre("config.json", "checkpoint-7"));
}

TEST_F(CheckpointFolder, AFailureOnOneRankIsTheSameErrorOnAllAndLeavesNothing) {
  save(6);
  std::array<std::string, 3> errors;
  run_ranks(3, [&](Communicator& communicator) {
    auto pieces = pieces_of(communicator);
    if (communicator.rank() == 1) pieces.push_back(pieces.front());  // given twice: this rank's file cannot be written
    try {
      save_checkpoint(folder_, 7, pieces, Json::object(), {}, communicator);
    } catch (const Error& e) {
      errors[static_cast<std::size_t>(communicator.rank())] = e.what();
    }
    return 0;
  });
  EXPECT_THAT(errors[0], HasSubstr("state-00001.safetensors"));
  EXPECT_EQ(errors[1], errors[0]);
  EXPECT_EQ(errors[2], errors[0]);
  EXPECT_THAT(names(), testing::UnorderedElementsAre("config.json", "checkpoint-6"));
  EXPECT_EQ(newest()->step(), 6);
}

TEST_F(CheckpointFolder, ElementsThatNoRankSavesAreAnError) {
  const auto save_part = [&](std::int64_t begin, std::int64_t end) {
    const std::vector<CheckpointPiece> pieces = {
        {"weights/a",
         DType::f32,
         {6, 7},
         begin,
         end,
         std::as_bytes(std::span(values_)).first(static_cast<std::size_t>(end - begin) * sizeof(float))}};
    save_checkpoint(folder_, 1, pieces, Json::object(), {}, *alone());
  };
  EXPECT_THAT([&] { save_part(0, 41); }, ThrowsMessage<Error>(HasSubstr("weights/a")));
  EXPECT_THAT([&] { save_part(1, 42); }, ThrowsMessage<Error>(HasSubstr("weights/a")));
  EXPECT_THAT(names(), testing::ElementsAre("config.json"));
}

TEST_F(CheckpointFolder, TheSameStepAgainTakesThePlaceOfTheOldOne) {
  save(5, 3);
  values_[0] = 77;
  save(5, 1);
  EXPECT_EQ(read(*newest(), "weights/a"), values_);
  EXPECT_FALSE(fs::exists(folder_ / "checkpoint-5" / "state-00001.safetensors"));
  EXPECT_THAT(names(), testing::UnorderedElementsAre("config.json", "checkpoint-5"));
}

TEST_F(CheckpointFolder, TheNewestIsFoundByNumberNotByName) {
  for (const std::int64_t step : {9, 10, 100}) save(step);
  fs::create_directory(folder_ / "checkpoint-abc");
  EXPECT_THAT(checkpoint_steps(folder_), testing::ElementsAre(100, 10, 9));
  EXPECT_EQ(newest()->step(), 100);
}

TEST_F(CheckpointFolder, AllRanksTakeTheSameOne) {
  for (const std::int64_t step : {1, 2}) save(step, 2);
  std::ofstream(folder_ / "checkpoint-2" / "state-00001.safetensors", std::ios::app) << "x";
  std::array<std::int64_t, 3> steps{};
  run_ranks(3, [&](Communicator& communicator) {
    steps[static_cast<std::size_t>(communicator.rank())] = newest_checkpoint(folder_, communicator)->step();
    return 0;
  });
  EXPECT_THAT(steps, testing::Each(1));
}

TEST_F(CheckpointFolder, AnotherTensorOrMoreElementsAreRefused) {
  const Checkpoint checkpoint(save(1));
  EXPECT_THAT([&] { read(checkpoint, "weights/b"); }, ThrowsMessage<Error>(HasSubstr("weights/b")));
  EXPECT_THAT([&] { read(checkpoint, "weights/a", 0, 43); }, ThrowsMessage<Error>(HasSubstr("42 elements")));
}

TEST_F(CheckpointFolder, TheBestStaysHoweverOldItIs) {
  for (const std::int64_t step : {1, 2, 3, 4, 5}) save(step);
  remove_old_checkpoints(folder_, 2, 0, 2, *alone());
  EXPECT_THAT(checkpoint_steps(folder_), testing::ElementsAre(5, 4, 2));
  remove_old_checkpoints(folder_, 1, 0, 5, *alone());  // a new best: the old one is as any other
  EXPECT_THAT(checkpoint_steps(folder_), testing::ElementsAre(5));
}

TEST_F(CheckpointFolder, OldOnesGoAndSoDoUnfinishedOnes) {
  for (const std::int64_t step : {1, 2, 3, 4, 5, 6, 7}) save(step);
  fs::create_directory(folder_ / ".checkpoint-8.partial");
  remove_old_checkpoints(folder_, 2, 3, 0, *alone());
  EXPECT_THAT(checkpoint_steps(folder_), testing::ElementsAre(7, 6, 3));
  remove_old_checkpoints(folder_, 1, 0, 0, *alone());
  EXPECT_THAT(names(), testing::UnorderedElementsAre("config.json", "checkpoint-7"));
}

std::uint64_t inode(const fs::path& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 ? status.st_ino : 0;
}

TEST_F(CheckpointFolder, FilesThatDoNotChangeAreStoredOnce) {
  std::string large(2000000, 'x');
  const auto save_with_files = [&](std::int64_t step) {
    run_ranks(2, [&](Communicator& communicator) {
      const std::array<KeptFile, 2> files = {{{"large.txt", "", large}, {"small.txt", "", "y"}}};
      save_checkpoint(folder_, step, pieces_of(communicator), Json::object(), files, communicator);
      return 0;
    });
    return folder_ / fmt::format("checkpoint-{}", step);
  };
  const fs::path first = save_with_files(1);
  moments_[3] = 5;
  const fs::path second = save_with_files(2);
  EXPECT_EQ(inode(first / "large.txt"), inode(second / "large.txt"));
  for (const char* name : {"state-00000.safetensors", "small.txt"})
    EXPECT_NE(inode(first / name), inode(second / name)) << name;
  remove_old_checkpoints(folder_, 1, 0, 0, *alone());
  EXPECT_EQ(fs::file_size(second / "large.txt"), large.size());
  EXPECT_EQ(read(*newest(), "exp_avg/a"), moments_);

  large[0] = 'z';  // it has changed after all
  const fs::path third = save_with_files(3);
  EXPECT_NE(inode(second / "large.txt"), inode(third / "large.txt"));
}

void flip(const fs::path& path, std::uintmax_t at, int bit) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const char byte = static_cast<char>(file.get() ^ (1 << bit));
  file.seekp(static_cast<std::streamoff>(at));
  file.put(byte);
}

/// Two tensors of 1.2 and 0.4 MB, and one of more where a test fills it; the checkpoints of what they hold.
class UnchangedPieces : public CheckpointFolder {
 protected:
  fs::path save_large(std::int64_t step, int ranks = 1, const SavedMemory& memory = {}) {
    run_ranks(ranks, [&](Communicator& communicator) {
      CheckpointSave save(folder_, step, pieces_of_all(communicator), Json::object(), {}, communicator, memory);
      save.write();
      save.commit();
      return 0;
    });
    const fs::path path = folder_ / fmt::format("checkpoint-{}", step);
    const Checkpoint checkpoint(path);
    checkpoint.verify();
    EXPECT_TRUE(read(checkpoint, "exp_avg/large", 0, 300000) == large_) << step;
    EXPECT_TRUE(read(checkpoint, "weights/small", 0, 100000) == small_) << step;
    if (!other_.empty()) {
      EXPECT_TRUE(read(checkpoint, "weights/other", 0, std::ssize(other_)) == other_) << step;
    }
    return path;
  }
  std::vector<CheckpointPiece> pieces_of_all(Communicator& group) const {
    std::vector<CheckpointPiece> pieces = {piece_of("exp_avg/large", large_, group)};
    if (!other_.empty()) pieces.push_back(piece_of("weights/other", other_, group));
    pieces.push_back(piece_of("weights/small", small_, group));
    return pieces;
  }
  static CheckpointPiece piece_of(const std::string& name, const std::vector<float>& values, Communicator& group) {
    const auto all = static_cast<std::int64_t>(values.size());
    const std::int64_t begin = all * group.rank() / group.size(), end = all * (group.rank() + 1) / group.size();
    const auto part = std::span(values).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
    return {name, DType::f32, {all}, begin, end, std::as_bytes(part)};
  }

  /// Of state files that are no links to earlier ones.
  static std::uintmax_t bytes_written(const fs::path& checkpoint) {
    std::uintmax_t bytes = 0;
    for (const auto& entry : fs::directory_iterator(checkpoint)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("state-") && name.find("-of-") == std::string::npos) bytes += entry.file_size();
    }
    return bytes;
  }

  static constexpr std::size_t kUnit = kUnitBytes / sizeof(float);
  static constexpr std::uintmax_t kHeader = 1000;  // more than that of a safetensors file of these tensors
  std::vector<float> large_ = numbers(300000, 1), small_ = numbers(100000, -7), other_;
};

TEST_F(UnchangedPieces, AreStoredOnceAndOutliveTheCheckpointThatWroteThem) {
  const fs::path first = save_large(1);
  small_[99999] = 5;
  const fs::path second = save_large(2);
  EXPECT_EQ(inode(second / "state-00000-of-1.safetensors"), inode(first / "state-00000.safetensors"));
  EXPECT_LT(fs::file_size(second / "state-00000.safetensors"), 401000u);
  small_[0] = 6;
  const fs::path third = save_large(3);
  EXPECT_EQ(inode(third / "state-00000-of-1.safetensors"), inode(first / "state-00000.safetensors"));
  fs::remove_all(second);
  remove_old_checkpoints(folder_, 1, 0, 0, *alone());
  EXPECT_GT(fs::file_size(third / "state-00000-of-1.safetensors"), 1600000u);
  EXPECT_TRUE(read(*newest(), "exp_avg/large", 0, 300000) == large_);
}

TEST_F(UnchangedPieces, OnlyTheUnitsThatChangedAreWritten) {
  save_large(1);
  large_[299999] = 0;  // in the last of five, which is shorter
  EXPECT_NEAR(bytes_written(save_large(2)), (300000 - 4 * kUnit) * sizeof(float), kHeader);
  large_[2 * kUnit - 1] = large_[2 * kUnit] = 0;  // the second and the third; they are compared with the first save's
  EXPECT_NEAR(bytes_written(save_large(3)), (300000 - 2 * kUnit) * sizeof(float), kHeader);
  EXPECT_EQ(inode(folder_ / "checkpoint-3" / "state-00000-of-1.safetensors"),
            inode(folder_ / "checkpoint-1" / "state-00000.safetensors"));
  EXPECT_NEAR(bytes_written(save_large(4)), (300000 - 2 * kUnit) * sizeof(float), kHeader);  // small: not linked
}

TEST_F(UnchangedPieces, LieBetweenOthersThatChanged) {
  other_ = numbers(40 * kUnit, 3);  // more than are looked at together
  save_large(1);
  for (std::size_t unit = 0; unit < 40; unit += 5) other_[unit * kUnit + unit] = -1;
  EXPECT_NEAR(bytes_written(save_large(2)), 8 * kUnitBytes, kHeader);
  other_[33 * kUnit] = -1;
  EXPECT_NEAR(bytes_written(save_large(3)), kUnitBytes, kHeader);  // two files are linked
  fs::remove_all(folder_ / "checkpoint-1");
  fs::remove_all(folder_ / "checkpoint-2");
  EXPECT_TRUE(read(*newest(), "weights/other", 0, std::ssize(other_)) == other_);
  EXPECT_EQ(read(*newest(), "weights/other", 33 * kUnit - 1, 33 * kUnit + 2),
            (std::vector<float>{other_[33 * kUnit - 1], -1, other_[33 * kUnit + 1]}));
}

TEST_F(UnchangedPieces, AreWrittenApartOnceAndLinkedFromThenOn) {
  other_ = numbers(8 * kUnit, 0);
  const auto change = [&] {
    for (auto& value : other_) value += 1;
  };
  save_large(1);
  change();  // so that less than half of the file is alive
  const fs::path second = save_large(2);
  EXPECT_FALSE(fs::exists(second / "state-00000-of-1.safetensors"));
  EXPECT_NEAR(fs::file_size(second / "state-00000-kept.safetensors"), 1600000, kHeader);
  for (const std::int64_t step : {3, 4}) {
    change();
    const fs::path path = save_large(step);
    EXPECT_NEAR(bytes_written(path), 8 * kUnitBytes, kHeader) << step;
    EXPECT_EQ(inode(path / "state-00000-kept-of-2.safetensors"), inode(second / "state-00000-kept.safetensors"));
  }
  remove_old_checkpoints(folder_, 1, 0, 0, *alone());
  EXPECT_TRUE(read(*newest(), "exp_avg/large", 0, 300000) == large_);
}

TEST_F(UnchangedPieces, AreTakenFromCompressedFilesToo) {
  other_ = random_numbers(40 * kUnit);
  save_large(1, 1, {.compresses = true});
  large_[5] = 0;
  const fs::path second = save_large(2, 1, {.compresses = true});
  EXPECT_EQ(inode(second / "state-00000-of-1.safetensors.shuffled.zst"),
            inode(folder_ / "checkpoint-1" / "state-00000.safetensors.shuffled.zst"));
  EXPECT_LT(bytes_written(second), kUnitBytes + kHeader);
  large_[6] = 0;
  const fs::path third = save_large(3);  // as it is, beside what is compressed
  EXPECT_NEAR(bytes_written(third), kUnitBytes, kHeader);
  flip(third / "state-00000-of-1.safetensors.shuffled.zst", 300000, 1);
  EXPECT_THAT([&] { newest_checkpoint(folder_, std::vector<std::int64_t>{3}, *alone()); },
              ThrowsMessage<Error>(HasSubstr("state-00000-of-1.safetensors.shuffled.zst: is damaged between bytes")));
}

TEST_F(UnchangedPieces, AreReadBeforeTheSnapshotSaysSo) {
  other_ = numbers(40 * kUnit, 0);
  Snapshot snapshot;
  std::atomic<int> reads = 0, late = 0;
  const auto read = [&](std::span<const std::byte> from, std::span<std::byte> to) {
    std::uint64_t position = 0;
    for (const auto* values : {&large_, &other_, &small_}) {
      const auto all = std::as_bytes(std::span(*values));
      if (from.data() >= all.data() && from.data() < all.data() + all.size()) {
        position += static_cast<std::uint64_t>(from.data() - all.data());
        ++reads;
        late += snapshot.has_reached(position + from.size()) ? 1 : 0;
        break;
      }
      position += all.size();
    }
    copy_memory(from, to);
  };
  for (const std::int64_t step : {1, 2, 3}) {
    snapshot.begin();
    save_large(step, 1, {.read = read, .snapshot = &snapshot, .compresses = step == 3});
    EXPECT_TRUE(snapshot.has_reached(UINT64_MAX));
    EXPECT_GT(reads.exchange(0), 4) << step;
    EXPECT_EQ(late, 0) << step;
    for (std::size_t i = 0; i < 30 * kUnit; ++i) other_[i] += 1;
  }
}

TEST_F(UnchangedPieces, AreNotTakenFromOtherRanksOrPiecesOfOtherSizes) {
  save_large(1, 2);
  save_large(2, 1);
  save_large(3, 2);
  for (const auto& entry : fs::recursive_directory_iterator(folder_))
    EXPECT_THAT(entry.path().filename().string(), testing::Not(HasSubstr("-of-")));
}

TEST_F(UnchangedPieces, AreWrittenAgainWhereTheOldOnesAreDamaged) {
  const fs::path first = save_large(1);
  std::fstream file(first / "state-00000.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(500000);
  file.put('x');
  file.close();
  EXPECT_FALSE(fs::exists(save_large(2) / "state-00000-of-1.safetensors"));
  flip(folder_ / "checkpoint-2" / "state-00000.safetensors", 1500000, 3);
  small_[5] = 7;  // so that the damage is not in what is compared
  EXPECT_FALSE(fs::exists(save_large(3) / "state-00000-of-2.safetensors"));
  fs::resize_file(folder_ / "checkpoint-3" / "state-00000.safetensors", 1000);
  EXPECT_FALSE(fs::exists(save_large(4) / "state-00000-of-3.safetensors"));
}

TEST_F(UnchangedPieces, AllOfThemAreNothingToWrite) {
  save_large(1);
  const fs::path second = save_large(2);
  EXPECT_FALSE(fs::exists(second / "state-00000.safetensors"));
  save_large(3);
  EXPECT_EQ(inode(folder_ / "checkpoint-3" / "state-00000-of-1.safetensors"),
            inode(folder_ / "checkpoint-1" / "state-00000.safetensors"));
}

TEST_F(CheckpointFolder, CompressedOnesAreReadBackAndTakeLess) {
  const std::vector<float> large = random_numbers(700001);  // frames and a part of one
  const std::vector<CheckpointPiece> pieces = {
      {"weights/large", DType::f32, {700001}, 0, 700001, std::as_bytes(std::span(large))}};
  const auto group = alone();
  CheckpointSave save(folder_, 1, pieces, Json::object(), {}, *group, {.compresses = true});
  save.write();
  const Checkpoint checkpoint(save.commit());
  checkpoint.verify();
  for (const auto& [begin, end] : {std::pair{0, 700001}, {700000, 700001}, {130000, 262144}, {5, 6}}) {
    EXPECT_TRUE(read(checkpoint, "weights/large", begin, end) ==
                std::vector(large.begin() + begin, large.begin() + end))
        << begin;
  }
  const auto stored = fs::file_size(folder_ / "checkpoint-1" / "state-00000.safetensors.shuffled.zst");
  EXPECT_LT(stored, 700001 * 3 + 20000);  // sign and exponent are the same everywhere
  EXPECT_GT(stored, 700001 * 23 / 8);
}

TEST_F(CheckpointFolder, OfTheFormatBeforeIsReadAndOneToComeIsNot) {
  const fs::path manifest = save(1) / "manifest.json";
  const std::string text = read_text_file(manifest), version = "\"version\": 3";
  const auto read_as = [&](const std::string& other) {
    std::string rest = text.substr(text.find('\n') + 1);
    rest.replace(rest.find(version), version.size(), "\"version\": " + other);
    const auto checksum = checksum_text(checksum_of(std::as_bytes(std::span(rest))));
    write_text_file(manifest, fmt::format("{{\"xxh3\": \"{}\",\n{}", checksum, rest));
    return read(Checkpoint(folder_ / "checkpoint-1"), "weights/a");
  };
  EXPECT_EQ(read_as("2"), values_);
  EXPECT_THAT([&] { read_as("4"); }, ThrowsMessage<Error>(HasSubstr("version")));
}

TEST_F(CheckpointFolder, NoneIsNoError) { EXPECT_FALSE(newest().has_value()); }

TEST_F(CheckpointFolder, ARehearsalTellsOfWhatIsInTheWayAndLeavesNothing) {
  rehearse_save(folder_, 1000, *alone());
  EXPECT_THAT(names(), testing::ElementsAre("config.json"));
  EXPECT_THAT([&] { rehearse_save(folder_, std::uint64_t{1} << 60, *alone()); },
              ThrowsMessage<Error>(HasSubstr(folder_.string())));
  EXPECT_THAT([&] { rehearse_save(folder_ / "config.json", 1, *alone()); },
              ThrowsMessage<Error>(HasSubstr("config.json")));
}

TEST_F(CheckpointFolder, ASaveThatDoesNotFitIsRefusedBeforeItIsWritten) {
  std::vector<CheckpointPiece> pieces = {{"weights/a", DType::f32, {6, 7}, 0, 42, std::as_bytes(std::span(values_))}};
  // More than any disk has: the memory is never touched.
  const std::int64_t elements = std::int64_t{1} << 58;
  pieces[0] = {"weights/a", DType::f32, {elements},
               0,           elements,   {pieces[0].bytes.data(), static_cast<std::size_t>(elements) * sizeof(float)}};
  EXPECT_THAT([&] { save_checkpoint(folder_, 1, pieces, Json::object(), {}, *alone()); },
              ThrowsMessage<Error>(HasSubstr("are free")));
}

/// What may happen to a file of a checkpoint.
struct Damage {
  const char* name;
  std::function<void(const fs::path&)> apply;
  bool is_compressed = false;
};

class DamagedFile : public CheckpointFolder, public testing::WithParamInterface<Damage> {};

TEST_P(DamagedFile, IsNamedAndTheCheckpointBeforeIsTaken) {
  const SavedMemory compressed{.compresses = GetParam().is_compressed};
  save(1, 2);
  save(2, 2, compressed);
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder_ / "checkpoint-2")) files.push_back(entry.path());
  EXPECT_EQ(files.size(), 4);  // two of state, the manifest, config.json
  for (const auto& file : files) {
    save(2, 2, compressed);
    GetParam().apply(file);
    testing::internal::CaptureStderr();
    const auto found = newest();
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(found->step(), 1) << file;
    EXPECT_THAT(said, testing::AllOf(HasSubstr("heddle: warning: "), HasSubstr("checkpoint-2"),
                                     HasSubstr(file.filename().string())));
  }
}

TEST_P(DamagedFile, IsAnErrorWhereNoOtherCheckpointIsWhole) {
  const std::string name = state_file_name(0, GetParam().is_compressed);
  GetParam().apply(save(1, 1, {.compresses = GetParam().is_compressed}) / name);
  EXPECT_THAT([&] { newest(); }, ThrowsMessage<Error>(testing::AllOf(HasSubstr("checkpoint-1"), HasSubstr(name))));
}

INSTANTIATE_TEST_SUITE_P(
    All, DamagedFile,
    testing::Values(Damage{"Emptied", [](const fs::path& path) { fs::resize_file(path, 0); }},
                    Damage{"CutInHalf", [](const fs::path& path) { fs::resize_file(path, fs::file_size(path) / 2); }},
                    Damage{"CutByOne", [](const fs::path& path) { fs::resize_file(path, fs::file_size(path) - 1); }},
                    Damage{"OneByteMore", [](const fs::path& path) { std::ofstream(path, std::ios::app) << ' '; }},
                    Damage{"Deleted", [](const fs::path& path) { fs::remove(path); }},
                    Damage{"FirstBitFlipped", [](const fs::path& path) { flip(path, 0, 0); }},
                    Damage{"BitFlippedInTheMiddle",
                           [](const fs::path& path) { flip(path, fs::file_size(path) / 2, 4); }},
                    Damage{"BitFlippedInACompressedOne",
                           [](const fs::path& path) { flip(path, fs::file_size(path) / 2, 4); }, true},
                    Damage{"LastBitFlipped", [](const fs::path& path) { flip(path, fs::file_size(path) - 1, 7); }}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace heddle
