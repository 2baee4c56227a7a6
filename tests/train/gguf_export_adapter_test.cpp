// An adapter is merged on the way into a GGUF file: W + (lora_alpha / r)·B·A (Hu et al. 2021, arXiv:2106.09685).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "formats/gguf.h"
#include "formats/json.h"
#include "quantize/decode.h"
#include "train/gguf_export.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr std::int64_t kHidden = 64, kRows = 32;  // of stories260K; k_proj has 4 heads of 8
constexpr double kScaling = 3.0;

float a_at(std::int64_t column) { return static_cast<float>(column % 7 - 3) / 8.0f; }
float b_at(std::int64_t row) { return static_cast<float>(row % 5 - 2) / 16.0f; }

fs::path stories() {
  const char* data = std::getenv("HEDDLE_DATA");
  return fs::path(data != nullptr ? data : HEDDLE_SOURCE_DIR "/../shared/data") / "models/stories260K";
}

/// An adapter of rank 1 on k_proj of layer 2, its factors as above.
class GgufExportOfAnAdapter : public testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(stories())) GTEST_SKIP() << stories() << " is absent";
    fs::create_directories(folder_);
  }
  ~GgufExportOfAnAdapter() override { fs::remove_all(folder_); }

  /// On a base model of the stories folder, by its name there.
  MergeReport export_merged(const std::string& base, std::optional<DType> type) const {
    write_adapter(stories() / base);
    return export_gguf(open_model(folder_ / "adapter"), out(), type);
  }
  fs::path out() const { return folder_ / "out.gguf"; }

  static std::vector<std::byte> bytes_of(const WeightFiles& files, const StoredTensor& tensor) {
    std::vector<std::byte> bytes(tensor.bytes());
    files.read(tensor, 0, bytes);
    return bytes;
  }
  static std::vector<float> values_of(const WeightFiles& files, const StoredTensor& tensor) {
    std::vector<float> values(kRows * kHidden);
    decode(tensor.dtype, bytes_of(files, tensor).data(), kRows * kHidden, 0, kRows * kHidden, values.data());
    return values;
  }

 private:
  void write_adapter(const fs::path& base) const {
    const fs::path adapter = folder_ / "adapter";
    fs::create_directories(adapter);
    const Json config = {{"peft_type", "LORA"},
                         {"r", 1},
                         {"lora_alpha", kScaling},
                         {"target_modules", "model.layers.2.self_attn.k_proj"},
                         {"base_model_name_or_path", base.string()}};
    std::ofstream(adapter / "adapter_config.json") << config.dump();
    std::vector<float> a, b;
    for (std::int64_t i = 0; i < kHidden; ++i) a.push_back(a_at(i));
    for (std::int64_t i = 0; i < kRows; ++i) b.push_back(b_at(i));
    const std::string module = "base_model.model.model.layers.2.self_attn.k_proj.";
    SafetensorsWriter writer(
        adapter / "adapter_model.safetensors",
        {{module + "lora_A.weight", DType::f32, {1, kHidden}}, {module + "lora_B.weight", DType::f32, {kRows, 1}}},
        {{"format", "pt"}});
    writer.append(std::as_bytes(std::span(a)));
    writer.append(std::as_bytes(std::span(b)));
    writer.finish();
  }

  fs::path folder_ = fs::temp_directory_path() /
                     (std::string("heddle_gguf_adapter_") +
                      testing::UnitTest::GetInstance()->current_test_info()->name() + "_" + std::to_string(::getpid()));
};

constexpr const char* kMerged = "model.layers.2.self_attn.k_proj.weight";

TEST_F(GgufExportOfAnAdapter, HoldsTheMergedWeightAndAllOthersByteForByte) {
  const MergeReport report = export_merged("hf", std::nullopt);
  EXPECT_EQ(report.merged(), 1u);
  const auto base = open_weights(open_model(stories() / "hf")), got = open_weights(open_model(out()));
  const auto before = values_of(*base, *base->find(kMerged)), after = values_of(*got, *got->find(kMerged));
  double greatest = 0, squares = 0, changes = 0;
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (std::int64_t column = 0; column < kHidden; ++column) {
      const auto i = static_cast<std::size_t>(row * kHidden + column);
      const double change = kScaling * static_cast<double>(b_at(row)) * static_cast<double>(a_at(column));
      const double exact = static_cast<double>(before[i]) + change;
      ASSERT_EQ(after[i], static_cast<float>(exact)) << row << " " << column;
      const double error = static_cast<double>(after[i]) - exact;
      greatest = std::max(greatest, std::fabs(error));
      squares += error * error;
      changes += change * change;
    }
  }
  EXPECT_EQ(report.greatest_error(), greatest);
  EXPECT_NEAR(report.relative_error(), std::sqrt(squares / changes), 1e-3 * std::sqrt(squares / changes));
  for (const StoredTensor* tensor : base->tensors()) {
    if (tensor->name == kMerged) continue;
    EXPECT_EQ(bytes_of(*base, *tensor), bytes_of(*got, *got->find(tensor->name))) << tensor->name;
  }
}

// Of a block of Q8_0 an element is at most half a step away, 1/254 of the block's greatest magnitude, and the step is
// rounded to F16, whose error of 2^-11 counts up to 127 times.
TEST_F(GgufExportOfAnAdapter, OfAQuantizedBaseIsDecodedMergedAndEncodedAgain) {
  const MergeReport report = export_merged("stories260K-q8_0.gguf", std::nullopt);
  const auto base = open_weights(open_model(stories() / "stories260K-q8_0.gguf"));
  const auto got = open_weights(open_model(out()));
  ASSERT_EQ(got->find(kMerged)->dtype, DType::q8_0);
  const auto before = values_of(*base, *base->find(kMerged)), after = values_of(*got, *got->find(kMerged));
  double greatest = 0;
  for (std::int64_t begin = 0; begin < kRows * kHidden; begin += 32) {
    std::vector<double> exact;
    for (std::int64_t i = begin; i < begin + 32; ++i)
      exact.push_back(static_cast<double>(before[static_cast<std::size_t>(i)]) +
                      kScaling * static_cast<double>(b_at(i / kHidden)) * static_cast<double>(a_at(i % kHidden)));
    double magnitude = 0;
    for (const double value : exact) magnitude = std::max(magnitude, std::fabs(value));
    for (std::size_t i = 0; i < exact.size(); ++i) {
      const double error = std::fabs(static_cast<double>(after[static_cast<std::size_t>(begin) + i]) - exact[i]);
      EXPECT_LE(error, magnitude * (1.0 / 254 + 0x1p-11));
      greatest = std::max(greatest, error);
    }
  }
  EXPECT_EQ(report.greatest_error(), greatest);
  for (const StoredTensor* tensor : base->tensors()) {
    if (tensor->name == kMerged) continue;
    EXPECT_EQ(bytes_of(*base, *tensor), bytes_of(*got, *got->find(tensor->name))) << tensor->name;
  }
}

TEST_F(GgufExportOfAnAdapter, NeedsATypeWhereTheBasesCannotBeWritten) {
  try {
    export_merged("stories260K-iq4_nl.gguf", std::nullopt);
    FAIL() << "IQ4_NL is decoded only";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("blk.2.attn_k.weight: is IQ4_NL in the base"));
  }
  EXPECT_FALSE(fs::exists(out()));
  EXPECT_EQ(export_merged("stories260K-iq4_nl.gguf", DType::bf16).merged(), 1u);
}

}  // namespace
}  // namespace heddle
