#include "tiers/swap_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "tiers/swap_transfers.h"

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

TEST_F(SwapFileTest, AnyRangeIsReadWhateverItsSize) {
  constexpr std::size_t kBytes = 700001;
  SwapFile file(folder_, kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) file.mapped()[i] = static_cast<std::byte>(i * 2654435761u >> 11);
  const std::vector<std::byte> all(file.mapped(), file.mapped() + kBytes);
  file.drop_mapped();
  for (const auto& [offset, bytes] :
       {std::pair<std::size_t, std::size_t>{0, kBytes}, {4095, 600000}, {kBytes - 5, 5}}) {
    std::vector<std::byte> read(bytes);
    file.read(offset, read);
    EXPECT_TRUE(std::equal(read.begin(), read.end(), all.begin() + static_cast<std::ptrdiff_t>(offset))) << offset;
  }
}

TEST_F(SwapFileTest, TheMappingAndTheTransfersSeeTheSameBytes) {
  SwapFile file(folder_, 65536);
  std::memset(file.mapped() + 4096, 42, 4096);
  file.drop_mapped();
  SwapTransfers transfers(file, {});
  std::vector<std::byte> read(4096), written(4096, static_cast<std::byte>(7));
  transfers.read(4096, read);
  transfers.write(8192, written);
  transfers.finish();
  EXPECT_EQ(read[4095], static_cast<std::byte>(42));
  EXPECT_EQ(file.mapped()[8192 + 5], static_cast<std::byte>(7));
}

TEST_F(SwapFileTest, StartsAsZerosAndHasNoName) {
  const SwapFile file(folder_, 10000);
  std::vector<std::byte> read(10000, static_cast<std::byte>(1));
  SwapTransfers transfers(file, {});
  transfers.read(0, read);
  transfers.finish();
  EXPECT_EQ(
      std::accumulate(read.begin(), read.end(), 0, [](int sum, std::byte b) { return sum + static_cast<int>(b); }), 0);
  EXPECT_TRUE(is_empty());
}

TEST_F(SwapFileTest, OnlyWholePagesGoPastThePageCache) {
  const SwapFile file(folder_, 65536);
  const auto* const page = reinterpret_cast<const void*>(std::uintptr_t{1} << 20);
  const auto* const odd = reinterpret_cast<const void*>((std::uintptr_t{1} << 20) + 7);
  const int through = file.descriptor(7, page, 4096);
  EXPECT_EQ(fcntl(through, F_GETFL) & O_DIRECT, 0);
  EXPECT_EQ(file.descriptor(4096, page, 77), through);
  EXPECT_EQ(file.descriptor(4096, odd, 4096), through);
  const int past = file.descriptor(4096, page, 8192);
  EXPECT_TRUE(past == through || (fcntl(past, F_GETFL) & O_DIRECT) != 0);
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
