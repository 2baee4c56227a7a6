#include "train/weight_rules.h"

#include <gtest/gtest.h>

#include "formats/safetensors.h"

namespace heddle {
namespace {

/// A file of a matrix in Q4_0 and a norm in f32.
class QuantizedFile final : public WeightFiles {
 public:
  std::vector<const StoredTensor*> tensors() const override { return {&matrix_, &norm_}; }
  const StoredTensor* find(const std::string&) const override { return nullptr; }
  void read(const StoredTensor&, std::uint64_t, std::span<std::byte>) const override {}
  const std::map<std::string, std::string>& weight_map() const override { return map_; }

 private:
  const StoredTensor matrix_ = {.name = "up_proj.weight", .dtype = DType::q4_0, .shape = {1, 32}, .file = ""};
  const StoredTensor norm_ = {.name = "norm.weight", .dtype = DType::f32, .shape = {32}, .file = ""};
  const std::map<std::string, std::string> map_ = {};
};

TEST(WeightRules, AModelThatIsOnlyComputedWithStaysQuantized) {
  const QuantizedFile file;
  const WeightRules rules = inference_rules(ModelConfig{}, &file);
  EXPECT_EQ(rules("up_proj.weight").storage, DType::q4_0);
  EXPECT_EQ(rules("norm.weight").storage, std::nullopt);
  EXPECT_FALSE(rules("up_proj.weight").is_trainable);
  EXPECT_FALSE(rules("norm.weight").is_trainable);
}

TEST(WeightRules, WithoutAnAdapterEverythingIsTrainedInTheRunsType) {
  const QuantizedFile file;
  const WeightRules rules = training_rules(RunConfig{}, ModelConfig{}, &file);
  EXPECT_TRUE(rules("up_proj.weight").is_trainable);
  EXPECT_EQ(rules("up_proj.weight").storage, std::nullopt);
}

}  // namespace
}  // namespace heddle
