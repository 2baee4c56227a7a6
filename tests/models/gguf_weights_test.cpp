#include "models/gguf_weights.h"

#include <gmock/gmock.h>

#include <numeric>

#include "gguf_model_file.h"

namespace heddle {
namespace {

using testing::HasSubstr;

class GgufWeightsTest : public GgufModelFile {
 protected:
  static ModelConfig family(const std::string& model_type) {
    ModelConfig config;
    config.model_type = model_type;
    config.head_dim = 4;
    return config;
  }

  /// Q8_0 where all that matters: a half-precision scale of 1, then whole numbers.
  static void decode_q8(DType type, const std::byte* tensor, std::int64_t, std::int64_t begin, std::int64_t count,
                        float* out) {
    ASSERT_EQ(type, DType::q8_0);
    for (std::int64_t i = begin; i < begin + count; ++i) {
      out[i - begin] = static_cast<float>(static_cast<std::int8_t>(tensor[i / 32 * 34 + 2 + i % 32]));
    }
  }

  GgufWeights open(const std::string& model_type, const std::vector<Tensor>& tensors) const {
    return {write({{"general.architecture", std::string("any")}}, tensors), family(model_type), decode_q8};
  }

  static std::string read(const GgufWeights& weights, const std::string& name, std::uint64_t begin, std::uint64_t end) {
    std::string bytes(end - begin, '\0');
    weights.read(*weights.find(name), begin, std::as_writable_bytes(std::span(bytes)));
    return bytes;
  }

  /// All ranges of the tensor, in steps, hold the bytes of the whole.
  static void expect_bytes(const GgufWeights& weights, const std::string& name, const std::string& expected) {
    ASSERT_NE(weights.find(name), nullptr);
    ASSERT_EQ(weights.find(name)->bytes(), expected.size());
    const std::uint64_t size = expected.size();
    for (std::uint64_t begin = 0; begin < size; begin += 7) {
      for (std::uint64_t end = begin + 1; end <= size; end += 11) {
        ASSERT_EQ(read(weights, name, begin, end), expected.substr(begin, end - begin)) << begin << " to " << end;
      }
    }
    ASSERT_EQ(read(weights, name, 0, size), expected);
  }
};

TEST_F(GgufWeightsTest, PutsRowsOfQuantizedBlocksBack) {
  // Two heads of 4; each row is one block of 34 bytes that names its place in the file.
  std::string stored, expected;
  for (char row = 0; row < 8; ++row) stored.append(34, row);
  for (const char row : {0, 2, 1, 3, 4, 6, 5, 7}) expected.append(34, row);  // halves, no longer interleaved
  const auto weights = open("llama", {{"blk.0.attn_q.weight", {8, 32}, DType::q8_0, stored}});
  const StoredTensor& tensor = *weights.find("model.layers.0.self_attn.q_proj.weight");
  EXPECT_EQ(tensor.dtype, DType::q8_0);
  EXPECT_EQ(tensor.shape, (std::vector<std::int64_t>{8, 32}));
  expect_bytes(weights, tensor.name, expected);
}

TEST_F(GgufWeightsTest, PutsBiasesBack) {
  const auto weights = open("llama", {{"blk.3.attn_k.bias", {4}, DType::f32, bytes_of({0, 1, 2, 3})}});
  expect_bytes(weights, "model.layers.3.self_attn.k_proj.bias", bytes_of({0, 2, 1, 3}));
}

TEST_F(GgufWeightsTest, LeavesOtherFamiliesRowsWhereTheyAre) {
  const std::string bytes = bytes_of({0, 1, 2, 3, 4, 5, 6, 7});
  const auto weights = open("qwen2", {{"blk.0.attn_q.weight", {4, 2}, DType::f32, bytes}});
  expect_bytes(weights, "model.layers.0.self_attn.q_proj.weight", bytes);
}

TEST_F(GgufWeightsTest, TakesOneOffGemmasNorms) {
  const auto weights = open("gemma2", {{"blk.0.post_ffw_norm.weight", {3}, DType::f32, bytes_of({1, 1.5, -0.25})}});
  expect_bytes(weights, "model.layers.0.post_feedforward_layernorm.weight", bytes_of({0, 0.5, -1.25}));
}

TEST_F(GgufWeightsTest, TransposesGpt2sLinearLayers) {
  const auto weights = open("gpt2", {{"blk.0.ffn_up.weight", {3, 2}, DType::f32, bytes_of({0, 1, 10, 11, 20, 21})}});
  EXPECT_EQ(weights.find("transformer.h.0.mlp.c_fc.weight")->shape, (std::vector<std::int64_t>{2, 3}));
  expect_bytes(weights, "transformer.h.0.mlp.c_fc.weight", bytes_of({0, 10, 20, 1, 11, 21}));
}

TEST_F(GgufWeightsTest, DecodesBlocksThatWouldHaveToBeTransposed) {
  std::string stored;
  std::vector<float> expected(3 * 64);
  for (int output = 0; output < 3; ++output) {
    for (int input = 0; input < 64; ++input) {
      if (input % 32 == 0) stored.append(2, '\0');
      const int value = output * 40 - input;
      stored += static_cast<char>(value);
      expected[static_cast<std::size_t>(input * 3 + output)] = static_cast<float>(value);
    }
  }
  const auto weights = open("gpt2", {{"blk.0.ffn_down.weight", {3, 64}, DType::q8_0, stored}});
  const StoredTensor& tensor = *weights.find("transformer.h.0.mlp.c_proj.weight");
  EXPECT_EQ(tensor.dtype, DType::f32);
  EXPECT_EQ(tensor.shape, (std::vector<std::int64_t>{64, 3}));
  expect_bytes(weights, tensor.name, bytes_of(expected));
}

TEST_F(GgufWeightsTest, ListsTensorsUnderHuggingFacesNamesWithoutTheRopesFactors) {
  const auto weights =
      open("llama", {{"rope_freqs.weight", {2}}, {"output_norm.weight", {3}}, {"output.weight", {2, 3}}});
  std::vector<std::string> names;
  for (const StoredTensor* tensor : weights.tensors()) names.push_back(tensor->name);
  EXPECT_THAT(names, testing::ElementsAre("model.norm.weight", "lm_head.weight"));
  EXPECT_EQ(weights.find("output.weight"), nullptr);
}

TEST_F(GgufWeightsTest, RefusesTensorsByName) {
  const auto error = [&](const std::string& model_type, const Tensor& tensor) -> std::string {
    try {
      open(model_type, {tensor});
    } catch (const Error& thrown) {
      return thrown.what();
    }
    return "no error";
  };
  EXPECT_THAT(error("llama", {"blk.0.ffn_gate_exps.weight", {2, 2}}),
              HasSubstr("tensor blk.0.ffn_gate_exps.weight is surplus"));
  EXPECT_THAT(error("llama", {"output.weight", {1, 256}, DType::tq1_0}), HasSubstr("has type TQ1_0"));
  EXPECT_THAT(error("llama", {"blk.0.attn_q.weight", {6, 2}}), HasSubstr("has 6 rows; expected a multiple of"));
  EXPECT_THAT(error("gemma", {"output_norm.weight", {4}, DType::f16}), HasSubstr("has type F16; expected F32"));
}

}  // namespace
}  // namespace heddle
