#include "tiers/swap_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

namespace heddle {
namespace {

class SwapFileTest : public testing::Test {
 protected:
  SwapFileTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "heddle-test-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~SwapFileTest() override { std::filesystem::remove_all(folder_); }
  bool is_empty() const { return std::filesystem::is_empty(folder_); }

  std::filesystem::path folder_;
};

TEST_F(SwapFileTest, GivesBackWhatWasWrittenAlignedOrNot) {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  SwapFile file(folder_, kBytes);
  std::vector<std::byte> memory(3 * 4096 + 4096);
  auto* const aligned =
      reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(memory.data()) + 4095) / 4096 * 4096);
  for (const auto& [offset, start, bytes] : {std::tuple<std::uint64_t, std::size_t, std::size_t>{8192, 0, 8192},
                                             {4096 + 7, 0, 4096},
                                             {4096, 5, 4099},
                                             {kBytes - 3, 1, 3},
                                             {12, 12, 0}}) {
    std::vector<std::byte> source(bytes);
    for (std::size_t i = 0; i < bytes; ++i) source[i] = static_cast<std::byte>(i * 7 + offset);
    if (bytes > 0) std::memcpy(aligned + start, source.data(), bytes);
    file.write(offset, {aligned + start, bytes});
    std::memset(aligned, 0, 3 * 4096);
    file.read(offset, {aligned + start, bytes});
    EXPECT_TRUE(bytes == 0 || std::memcmp(aligned + start, source.data(), bytes) == 0) << offset << " " << bytes;
  }
}

TEST_F(SwapFileTest, TheMappingAndTheTransfersSeeTheSameBytes) {
  SwapFile file(folder_, 65536);
  std::memset(file.mapped() + 4096, 42, 4096);
  file.drop_mapped();
  std::vector<std::byte> read(4096);
  file.read(4096, read);
  EXPECT_EQ(read[4095], static_cast<std::byte>(42));
  std::vector<std::byte> written(4096, static_cast<std::byte>(7));
  file.write(8192, written);
  EXPECT_EQ(file.mapped()[8192 + 5], static_cast<std::byte>(7));
}

TEST_F(SwapFileTest, StartsAsZerosAndHasNoName) {
  const SwapFile file(folder_, 10000);
  std::vector<std::byte> read(10000, static_cast<std::byte>(1));
  file.read(0, read);
  EXPECT_EQ(
      std::accumulate(read.begin(), read.end(), 0, [](int sum, std::byte b) { return sum + static_cast<int>(b); }), 0);
  EXPECT_TRUE(is_empty());
}

TEST_F(SwapFileTest, ADiskThatIsTooSmallIsAnErrorWithBothFigures) {
  try {
    const SwapFile file(folder_, std::size_t{1} << 60);
    FAIL() << "was accepted";
  } catch (const std::exception& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find(folder_.string()), std::string::npos) << text;
    EXPECT_NE(text.find("1152921504606846976 bytes"), std::string::npos) << text;
    EXPECT_NE(text.find("bytes free"), std::string::npos) << text;
  }
  EXPECT_TRUE(is_empty());
}

TEST_F(SwapFileTest, AFolderThatIsNoneIsNamed) {
  EXPECT_THROW(SwapFile(folder_ / "absent", 4096), std::exception);
  EXPECT_NO_THROW(SwapFile(folder_ / "absent", 0));  // nothing is asked of it
}

}  // namespace
}  // namespace heddle
