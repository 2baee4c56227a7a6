#include "planner/ceilings.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/threads.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

/// A folder of its own, which also stands for the user's cache.
class CeilingsTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("heddle-ceilings-" + std::to_string(getpid()));
    fs::create_directories(folder_);
    setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("XDG_CACHE_HOME");
    fs::remove_all(folder_);
  }
  fs::path folder_;
};

Ceilings sample() {
  Ceilings ceilings;
  ceilings.cpu = cpu_model();
  ceilings.cores = available_cores();
  ceilings.measured_at = "2026-01-02T03:04:05Z";
  ceilings.by_threads = {{1, 1e11, 2e11, 2e10, 1e10, 1.5e10, 1.25e10, 1.75e10, 1.625e10},
                         {4, 4e11, 8e11, 4e10, 2e10, 3e10, 2.5e10, 3.5e10, 3e10}};
  ceilings.products = {{DType::f32, 1024, 768, 3072, 3.5e11, 3.25e11, 3e11},
                       {DType::bf16, 1024, 768, 3072, 7.5e11, 7.25e11, 7e11}};
  ceilings.disk = DiskCeilings{"/data", 1 << 28, true, {{1 << 22, 4, 1e9, 2e9}}};
  ceilings.collectives = {{"all_gather", 4, 1 << 26, 1e10, 5e-6}};
  return ceilings;
}

TEST_F(CeilingsTest, ADocumentReadsBackAsItWas) {
  const Json document = ceilings_document(sample());
  EXPECT_EQ(ceilings_document(read_ceilings(document, "c.json")), document);
  EXPECT_EQ(document["by_threads"][1]["bf16_multiply_add_flops_per_second"], 8e11);
  EXPECT_EQ(document["products"][1]["dtype"], "bfloat16");
  EXPECT_EQ(document["by_threads"][1]["update_bytes_per_second"], 3.5e10);
  EXPECT_EQ(document["disk"]["by_depth"][0]["read_bytes_per_second"], 2e9);
}

TEST_F(CeilingsTest, ADamagedDocumentIsRefusedByItsKey) {
  const auto message_of = [](const Json& document) {
    try {
      read_ceilings(document, "c.json");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  Json document = ceilings_document(sample());
  document["by_threads"][0]["read_bytes_per_second"] = 0.0;  // a ceiling of nothing would divide by zero
  EXPECT_EQ(message_of(document), "c.json: by_threads: read_bytes_per_second is no positive number");
  document = ceilings_document(sample());
  document.erase("cores");
  EXPECT_EQ(message_of(document), "c.json: cores is missing");
}

TEST_F(CeilingsTest, TheCacheKeepsThemForThisProcessorAndNumberOfCores) {
  EXPECT_FALSE(cached_ceilings().has_value());
  cache_ceilings(sample());
  const auto cached = cached_ceilings();
  ASSERT_TRUE(cached.has_value());
  EXPECT_EQ(ceilings_document(*cached), ceilings_document(sample()));
  Ceilings other = sample();
  other.cores += 1;
  cache_ceilings(other);  // as if a container had been given fewer cores since
  EXPECT_FALSE(cached_ceilings().has_value());
  std::ofstream(ceilings_cache_path()) << "{";
  EXPECT_FALSE(cached_ceilings().has_value());
}

TEST_F(CeilingsTest, OnlyMeasuredNumbersOfThreadsAreFound) {
  const Ceilings ceilings = sample();
  ASSERT_NE(ceilings.of_threads(4), nullptr);
  EXPECT_EQ(ceilings.of_threads(4)->flops, 4e11);
  EXPECT_EQ(ceilings.of_threads(2), nullptr);
}

TEST_F(CeilingsTest, SecondsOfTrafficAddUpByKind) {
  const ThreadCeilings ceilings = sample().by_threads[1];
  // 4 GB at 40 GB/s, 1 GB at 20 GB/s, 7 GB at 35 GB/s
  EXPECT_DOUBLE_EQ(ceilings.memory_seconds({4e9, 1e9, 7e9}), 0.1 + 0.05 + 0.2);
  EXPECT_DOUBLE_EQ(ceilings.compute_seconds(2e11), 0.5);
  EXPECT_DOUBLE_EQ(ceilings.compute_seconds(2e11, true), 0.25);
}

TEST_F(CeilingsTest, MeasuringLeavesTheNumberOfThreads) {
  const int before = threads();
  const ThreadCeilings ceilings = measure_threads(1, 0.01);
  EXPECT_EQ(threads(), before);
  EXPECT_EQ(ceilings.threads, 1);
  for (const double rate : {ceilings.flops, ceilings.bf16_flops, ceilings.read, ceilings.write, ceilings.copy,
                            ceilings.triad, ceilings.update, ceilings.adamw}) {
    EXPECT_GT(rate, 1e6);   // slower than any machine
    EXPECT_LT(rate, 1e13);  // faster than any core
  }
}

TEST_F(CeilingsTest, TheDiskIsLeftAsItWas) {
  const DiskCeilings disk = measure_disk(folder_);
  ASSERT_EQ(disk.by_depth.size(), 2u);
  for (const auto& entry : disk.by_depth) {
    EXPECT_GT(entry.write, 0);
    EXPECT_GT(entry.read, 0);
  }
  EXPECT_TRUE(fs::is_empty(folder_));
  EXPECT_THROW(measure_disk(folder_ / "absent"), Error);
}

TEST_F(CeilingsTest, EachCollectiveIsMeasured) {
  const auto collectives = measure_collectives(2);
  ASSERT_EQ(collectives.size(), 3u);
  for (const auto& entry : collectives) {
    EXPECT_EQ(entry.ranks, 2);
    EXPECT_GT(entry.bytes_per_second, 0);
    EXPECT_LT(entry.latency, static_cast<double>(entry.bytes) / entry.bytes_per_second);
  }
}

}  // namespace
}  // namespace heddle
