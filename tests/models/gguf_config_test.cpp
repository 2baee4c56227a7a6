#include "models/gguf_config.h"

#include <gmock/gmock.h>

#include <cmath>

#include "gguf_model_file.h"
#include "models/rope_frequencies.h"

namespace heddle {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class GgufConfig : public GgufModelFile {
 protected:
  /// The factors that llama.cpp's converter writes, in fp32: 1/((1-s)/F + s) between the two wavelengths.
  static std::vector<float> llama3_factors(double theta, int dimensions, double factor, double low, double high,
                                           double original) {
    std::vector<float> factors;
    for (int i = 0; i < dimensions; i += 2) {
      const double wavelength = 2.0 * M_PI * std::pow(theta, static_cast<double>(i) / dimensions);
      const double smooth = (original / wavelength - low) / (high - low);
      const double divisor = wavelength < original / high  ? 1.0
                             : wavelength > original / low ? factor
                                                           : 1.0 / ((1.0 - smooth) / factor + smooth);
      factors.push_back(static_cast<float>(divisor));
    }
    return factors;
  }

  ModelConfig with_factors(double theta, const std::vector<float>& factors) const {
    const auto pairs = static_cast<std::int64_t>(factors.size());
    const Keys keys = keys_of("llama", {{"rope.freq_base", theta},
                                        {"attention.key_length", static_cast<std::uint64_t>(2 * pairs)},
                                        {"attention.value_length", static_cast<std::uint64_t>(2 * pairs)},
                                        {"rope.dimension_count", static_cast<std::uint64_t>(2 * pairs)}});
    return config_of(keys,
                     {{"token_embd.weight", {130, 16}}, {"rope_freqs.weight", {pairs}, DType::f32, bytes_of(factors)}});
  }
};

TEST_F(GgufConfig, ReadsTheSizesOfALlama) {
  const auto keys = keys_of("llama", {{"vocab_size", std::uint64_t{131}}});
  const ModelConfig config = config_of(keys);
  EXPECT_EQ(config.model_type, "llama");
  EXPECT_EQ(config.vocab_size, 130);  // the table's rows
  EXPECT_EQ(config.hidden_size, 16);
  EXPECT_EQ(config.intermediate_size, 24);
  EXPECT_EQ(config.num_layers, 4);
  EXPECT_EQ(config.num_heads, 4);
  EXPECT_EQ(config.num_kv_heads, 2);
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.max_positions, 64);
  EXPECT_EQ(config.norm_epsilon, 1e-5);  // the decimal, not the float
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_FALSE(config.attention_bias);
  EXPECT_EQ(config.torch_dtype, "float32");
}

TEST_F(GgufConfig, WhatTensorsAreThereDecides) {
  const ModelConfig config = config_of(keys_of("llama"), {{"token_embd.weight", {130, 16}, DType::bf16},
                                                          {"output.weight", {130, 16}, DType::bf16},
                                                          {"blk.0.attn_q.bias", {32}}});
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_TRUE(config.attention_bias);
  EXPECT_EQ(config.torch_dtype, "bfloat16");
}

TEST_F(GgufConfig, EndsOfTextAndOfTurnsAreBothEnds) {
  Keys keys = keys_of("llama");
  keys.emplace_back("tokenizer.ggml.bos_token_id", std::uint64_t{1});
  keys.emplace_back("tokenizer.ggml.eos_token_id", std::uint64_t{2});
  EXPECT_THAT(config_of(keys).eos_token_ids, ElementsAre(2));
  keys.emplace_back("tokenizer.ggml.eot_token_id", std::uint64_t{7});
  EXPECT_THAT(config_of(keys).eos_token_ids, ElementsAre(2, 7));
  EXPECT_EQ(config_of(keys).bos_token_id, 1);
}

TEST_F(GgufConfig, AWindowMakesALlamaAMistral) {
  const ModelConfig config = config_of(keys_of("llama", {{"attention.sliding_window", std::uint64_t{32}}}));
  EXPECT_EQ(config.model_type, "mistral");
  EXPECT_EQ(config.sliding_window, 32);
}

TEST_F(GgufConfig, Llama3ScalingIsFoundFromItsFactors) {
  const auto published = llama3_factors(500000.0, 128, 8.0, 1.0, 4.0, 8192.0);  // Llama 3.1
  const RopeConfig rope = with_factors(500000.0, published).rope;
  EXPECT_EQ(rope.type, RopeType::llama3);
  EXPECT_EQ(rope.factor, 8.0);
  EXPECT_EQ(rope.low_freq_factor, 1.0);
  EXPECT_EQ(rope.high_freq_factor, 4.0);
  EXPECT_EQ(rope.original_max_position_embeddings, 8192);
}

TEST_F(GgufConfig, OtherParametersOfLlama3GiveTheSameFrequencies) {
  struct Case {
    double theta;
    int dimensions;
    double factor, low, high, original;
  };
  for (const Case& c : {Case{500000.0, 64, 32.0, 1.0, 4.0, 8192.0}, Case{10000.0, 32, 4.0, 1.0, 4.0, 96.0},
                        Case{10000.0, 64, 8.0, 2.0, 6.0, 512.0}, Case{10000.0, 16, 8.0, 1.0, 4.0, 32.0}}) {
    const auto factors = llama3_factors(c.theta, c.dimensions, c.factor, c.low, c.high, c.original);
    const RopeConfig rope = with_factors(c.theta, factors).rope;
    const auto scaled = rope_frequencies(rope, c.dimensions, 64, 1).inv_freq;
    ASSERT_EQ(scaled.size(), factors.size());
    for (std::size_t i = 0; i < scaled.size(); ++i) {
      const double plain = std::pow(c.theta, -2.0 * static_cast<double>(i) / c.dimensions);
      EXPECT_NEAR(scaled[i] * static_cast<double>(factors[i]) / plain, 1.0, 2e-6) << c.original << ": pair " << i;
    }
  }
}

TEST_F(GgufConfig, FactorsOfOneScaleNothingAndOthersAreRefused) {
  EXPECT_EQ(with_factors(10000.0, {1, 1, 1, 1}).rope.type, RopeType::standard);
  try {
    with_factors(10000.0, {1, 7, 2, 5});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("rope_freqs.weight holds factors that are not those of a llama3 rope"));
  }
}

TEST_F(GgufConfig, LinearAndYarnScalingComeFromKeys) {
  const RopeConfig linear =
      config_of(keys_of("llama", {{"rope.scaling.type", std::string("linear")}, {"rope.scaling.factor", 4.0}})).rope;
  EXPECT_EQ(linear.type, RopeType::linear);
  EXPECT_EQ(linear.factor, 4.0);
  EXPECT_EQ(config_of(keys_of("llama", {{"rope.scale_linear", 2.0}})).rope.factor, 2.0);  // the older key
  const RopeConfig yarn = config_of(keys_of("qwen2", {{"rope.scaling.type", std::string("yarn")},
                                                      {"rope.scaling.factor", 4.0},
                                                      {"rope.scaling.original_context_length", std::uint64_t{16}}}))
                              .rope;
  EXPECT_EQ(yarn.type, RopeType::yarn);
  EXPECT_EQ(yarn.original_max_position_embeddings, 16);
  EXPECT_THAT(error_of(keys_of("llama", {{"rope.scaling.type", std::string("dynamic")}})),
              HasSubstr("rope.scaling.type is dynamic; expected none, linear, yarn or longrope"));
}

TEST_F(GgufConfig, Gemma2HasCapsWindowsAndItsScale) {
  const ModelConfig config =
      config_of(keys_of("gemma2", {{"attn_logit_softcapping", 40.0}, {"attention.sliding_window", std::uint64_t{32}}}));
  EXPECT_EQ(config.attention_softcap, 40.0);
  EXPECT_EQ(config.final_softcap, 30.0);  // the default
  EXPECT_THAT(config.layer_is_sliding, ElementsAre(true, false, true, false));
  EXPECT_EQ(config.attention_scale, 1.0 / std::sqrt(8.0));
  EXPECT_EQ(config.activation, Activation::gelu_tanh);
  EXPECT_EQ(config.norm_offset, 1.0);
}

TEST_F(GgufConfig, TheLargestGemmasDivideByHiddenSizeOverHeads) {
  const auto largest = keys_of("gemma2", {{"block_count", std::uint64_t{46}}, {"embedding_length", std::uint64_t{24}}});
  EXPECT_EQ(config_of(largest, {{"token_embd.weight", {130, 24}}}).attention_scale, 1.0 / std::sqrt(6.0));
}

TEST_F(GgufConfig, Gemma3HasTwoRopesAndFiveWindowsOfSix) {
  const ModelConfig config = config_of(keys_of("gemma3", {{"block_count", std::uint64_t{7}},
                                                          {"rope.freq_base", 1e6},
                                                          {"rope.scaling.type", std::string("linear")},
                                                          {"rope.scaling.factor", 8.0},
                                                          {"attention.sliding_window", std::uint64_t{32}}}));
  EXPECT_EQ(config.rope.theta, 1e6);
  EXPECT_EQ(config.rope.factor, 8.0);
  ASSERT_TRUE(config.local_rope);
  EXPECT_EQ(config.local_rope->theta, 10000.0);
  EXPECT_THAT(config.layer_is_sliding, ElementsAre(true, true, true, true, true, false, true));
  EXPECT_EQ(config_of(keys_of("gemma3")).sliding_window, 0);  // one without the key has none
}

TEST_F(GgufConfig, Phi3ReadsLongropeFactorsAndPartialRotation) {
  const auto keys =
      keys_of("phi3", {{"rope.dimension_count", std::uint64_t{6}},
                       {"rope.scaling.original_context_length", std::uint64_t{16}},
                       {"rope.scaling.attn_factor", static_cast<double>(static_cast<float>(std::sqrt(1.5)))},
                       {"attention.sliding_window", std::uint64_t{0}}});
  const ModelConfig config = config_of(keys, {{"token_embd.weight", {130, 16}},
                                              {"rope_factors_short.weight", {3}, DType::f32, bytes_of({1, 1.25, 1.5})},
                                              {"rope_factors_long.weight", {3}, DType::f32, bytes_of({1, 2, 4})}});
  EXPECT_EQ(config.rope.type, RopeType::longrope);
  EXPECT_THAT(config.rope.long_factor, ElementsAre(1, 2, 4));
  EXPECT_EQ(config.rope.original_max_position_embeddings, 16);
  EXPECT_EQ(rotary_dimensions(config.rope, config.head_dim), 6);
  EXPECT_FALSE(config.rope.attention_factor);  // sqrt(1 + ln(64/16) / ln 16), what follows anyway
  EXPECT_EQ(config.sliding_window, 0);
}

TEST_F(GgufConfig, GraniteReadsItsMultipliers) {
  const ModelConfig config = config_of(keys_of("granite", {{"attention.scale", 0.015625},
                                                           {"embedding_scale", 12.0},
                                                           {"residual_scale", static_cast<double>(0.22f)},
                                                           {"logit_scale", 8.0}}));
  EXPECT_EQ(config.attention_scale, 0.015625);
  EXPECT_EQ(config.embedding_multiplier, 12.0);
  EXPECT_EQ(config.residual_multiplier, 0.22);
  EXPECT_EQ(config.logits_scaling, 8.0);
}

TEST_F(GgufConfig, SmolLm3LeavesEachFourthLayerWithoutRope) {
  EXPECT_THAT(config_of(keys_of("smollm3")).layer_has_rope, ElementsAre(true, true, true, false));
}

TEST_F(GgufConfig, Gpt2HasItsOwnSpelling) {
  const Keys keys = {{"general.architecture", std::string("gpt2")},
                     {"gpt2.block_count", std::uint64_t{2}},
                     {"gpt2.context_length", std::uint64_t{32}},
                     {"gpt2.embedding_length", std::uint64_t{16}},
                     {"gpt2.feed_forward_length", std::uint64_t{64}},
                     {"gpt2.attention.head_count", std::uint64_t{4}},
                     {"gpt2.attention.layer_norm_epsilon", static_cast<double>(1e-5f)}};
  const ModelConfig config = config_of(keys, {{"token_embd.weight", {130, 16}}, {"position_embd.weight", {32, 16}}});
  EXPECT_EQ(config.model_type, "gpt2");
  EXPECT_EQ(config.max_positions, 32);
  EXPECT_EQ(config.intermediate_size, 64);
  EXPECT_EQ(config.activation, Activation::gelu_tanh);
  EXPECT_TRUE(config.tie_word_embeddings);
}

TEST_F(GgufConfig, RefusesByNameWhatNoFamilyHas) {
  Keys other = keys_of("llama");
  other[0].second = std::string("command-r");
  EXPECT_THAT(error_of(other), HasSubstr("general.architecture is \"command-r\"; expected llama, qwen2"));
  EXPECT_THAT(error_of(keys_of("llama", {{"expert_count", std::uint64_t{8}}})), HasSubstr("llama.expert_count is 8"));
  EXPECT_THAT(error_of(keys_of("qwen2", {{"attention.sliding_window", std::uint64_t{8}}})),
              HasSubstr("qwen2.attention.sliding_window is 8; expected no such key"));
  EXPECT_THAT(error_of(keys_of("llama", {{"attention.causal", false}})), HasSubstr("llama.attention.causal is false"));
  EXPECT_THAT(error_of(keys_of("llama", {{"attention.value_length", std::uint64_t{4}}})),
              HasSubstr("llama.attention.value_length is 4; expected 8"));
  EXPECT_THAT(error_of(keys_of("llama", {{"attention.head_count", std::vector<std::int64_t>{4, 4, 2, 4}}})),
              HasSubstr("llama.attention.head_count"));
  EXPECT_THAT(error_of(keys_of("llama"), {{"output_norm.weight", {16}}}),
              HasSubstr("tensor token_embd.weight is missing"));
  Keys split = keys_of("llama");
  split.emplace_back("split.count", std::uint64_t{3});
  EXPECT_THAT(error_of(split), HasSubstr("split.count is 3; expected 1"));
}

}  // namespace
}  // namespace heddle
