#include "planner/hardware.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace heddle {
namespace {

std::string refusal(std::string_view text) {
  try {
    parse_hardware(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Figures of NVIDIA's and AMD's data sheets.
TEST(Hardware, CarriesTheDataSheetsFigures) {
  const Device a100 = parse_hardware("A100-40GB").device;
  EXPECT_EQ(a100.half_flops, 312e12);
  EXPECT_EQ(a100.float_flops, 19.5e12);
  EXPECT_EQ(a100.memory_bandwidth, 1555e9);
  const Device h200 = parse_hardware("H200").device;
  EXPECT_EQ(h200.memory_bandwidth, 4800e9);
  EXPECT_EQ(parse_hardware("MI300X").device.half_flops, 1307e12);
  EXPECT_EQ(parse_hardware("B200").device.memory_bandwidth, 7700e9);  // of an HGX B200
  EXPECT_FALSE(parse_hardware("V100-32GB").device.has_bf16);          // bf16 came with Ampere
}

TEST(Hardware, AProcessCanUseLessThanTheNominalMemory) {
  for (const auto& [name, gigabytes] :
       {std::pair{"T4", 16.0}, std::pair{"V100-16GB", 16.0}, std::pair{"V100-32GB", 32.0}, std::pair{"RTX 3090", 24.0},
        std::pair{"RTX 4090", 24.0}, std::pair{"RTX 5090", 32.0}, std::pair{"A100-40GB", 40.0},
        std::pair{"A100-80GB", 80.0}, std::pair{"H100", 80.0}, std::pair{"H200", 141.0}, std::pair{"B200", 180.0},
        std::pair{"MI300X", 192.0}}) {
    const auto memory = static_cast<double>(parse_hardware(name).device.memory);
    EXPECT_LT(memory, gigabytes * 0x1p30) << name;
    EXPECT_GT(memory, gigabytes * 0x1p30 * 0.87) << name;
  }
}

TEST(Hardware, NamesAreReadInAnyCaseAndSpacing) {
  const Hardware four = parse_hardware("4xa100_40gb");
  EXPECT_EQ(four.devices, 4);
  EXPECT_EQ(four.device.name, "A100-40GB");
  EXPECT_EQ(parse_hardware("8XRTX4090").device.name, "RTX 4090");
  EXPECT_EQ(parse_hardware("h100").devices, 0);  // no number is named
}

TEST(Hardware, AMisspelledNameNamesTheNearest) {
  EXPECT_NE(refusal("2xH10O").find("did you mean H100?"), std::string::npos) << refusal("2xH10O");
  EXPECT_EQ(refusal("A10").find("may be several"), std::string::npos) << refusal("A10");  // another device than A100
  EXPECT_NE(refusal("A10").find("T4, V100-16GB"), std::string::npos)
      << refusal("A10");  // nothing is near: all are named
  EXPECT_NE(refusal("4090").find("did you mean RTX 4090?"), std::string::npos) << refusal("4090");
}

TEST(Hardware, APartOfANameNamesAllThatHaveIt) {
  EXPECT_NE(refusal("A100").find("A100-40GB or A100-80GB"), std::string::npos) << refusal("A100");
}

TEST(Hardware, RefusesNoDevices) { EXPECT_NE(refusal("0xH100").find("0 is no number of devices"), std::string::npos); }

TEST(Hardware, RanksOnACpuShareIt) {
  const Device one = cpu_device(1), four = cpu_device(4);
  EXPECT_TRUE(one.is_host);
  // Memory that is free moves between two looks; a share of a quarter does not come near a half.
  EXPECT_LT(four.memory, one.memory / 2);
}

TEST(Hardware, ACpuHasTheRatesThatWereMeasuredHere) {
  ThreadCeilings rates{.threads = 4, .flops = 400e9};
  rates.copy = 40e9;
  const Device bare = cpu_device(2, rates, nullptr);
  EXPECT_EQ(bare.float_flops, 200e9);
  EXPECT_EQ(bare.memory_bandwidth, 20e9);
  EXPECT_EQ(bare.peer_link, 20e9);
  Ceilings kept;
  kept.collectives = {{"reduce_scatter", 4, 64, 1e9, 1e-6}, {"all_gather", 4, 64, 8e9, 1e-6}};
  kept.disk = DiskCeilings{"/tmp", 64, true, {{4, 1, 1e9, 1.2e9}, {4, 4, 2e9, 3e9}}};
  const Device measured = cpu_device(2, rates, &kept);
  EXPECT_EQ(measured.peer_link, 6e9);       // a rank of four receives three quarters of the tensor
  EXPECT_EQ(measured.nvme_bandwidth, 1e9);  // two ranks share the slower way of the deepest queue
  kept.disk->is_direct = false;             // then it was the page cache
  EXPECT_EQ(cpu_device(2, rates, &kept).nvme_bandwidth, bare.nvme_bandwidth);
}

}  // namespace
}  // namespace heddle
