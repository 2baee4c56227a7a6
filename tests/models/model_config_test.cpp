#include "models/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "model_config_cases.h"

// Expected values without a word on their source are the defaults of transformers' configuration classes (5.24.0).
namespace heddle {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

TEST(ModelConfig, ReadsTheSizes) {
  const ModelConfig c = parse("llama");
  EXPECT_EQ(c.model_type, "llama");
  EXPECT_EQ(c.vocab_size, 130);
  EXPECT_EQ(c.hidden_size, 16);
  EXPECT_EQ(c.intermediate_size, 24);
  EXPECT_EQ(c.num_layers, 4);
  EXPECT_EQ(c.num_heads, 4);
  EXPECT_EQ(c.num_kv_heads, 2);
  EXPECT_EQ(c.head_dim, 8);
  EXPECT_EQ(c.max_positions, 64);
  EXPECT_TRUE(c.tie_word_embeddings);
}

TEST(ModelConfig, AbsentKeysMeanTheFamilysDefaults) {
  const auto bare = [](const std::string& type) {
    return parse(type, R"({"tie_word_embeddings": "drop", "max_position_embeddings": "drop", "vocab_size": 200000})");
  };
  struct Expected {
    const char* type;
    bool tied;
    std::int64_t positions;
    double epsilon, theta;
    std::optional<std::int32_t> bos;
    std::vector<std::int32_t> eos;
    std::int64_t window;
  };
  const std::vector<Expected> all = {
      {"llama", false, 2048, 1e-6, 1e4, 1, {2}, 0},
      {"mistral", false, 131072, 1e-6, 1e4, 1, {2}, 4096},
      {"qwen2", false, 32768, 1e-6, 1e4, {}, {}, 0},
      {"qwen3", false, 32768, 1e-6, 1e4, {}, {}, 0},
      {"gemma", true, 8192, 1e-6, 1e4, 2, {1}, 0},
      {"gemma2", true, 8192, 1e-6, 1e4, 2, {1}, 4096},
      {"gemma3_text", true, 131072, 1e-6, 1e6, 2, {1}, 4096},
      {"phi3", false, 4096, 1e-5, 1e4, 1, {32000}, 0},
      {"olmo2", false, 2048, 1e-5, 1e4, {}, {50279}, 0},
      {"granite", false, 2048, 1e-6, 1e4, 1, {2}, 0},
      {"smollm3", true, 32768, 1e-6, 2e6, 128000, {128001}, 0},
  };
  EXPECT_EQ(all.size() + 1, supported_model_types().size());  // and gpt2, below
  for (const Expected& e : all) {
    const ModelConfig c = bare(e.type);
    EXPECT_EQ(c.tie_word_embeddings, e.tied) << e.type;
    EXPECT_EQ(c.max_positions, e.positions) << e.type;
    EXPECT_EQ(c.norm_epsilon, e.epsilon) << e.type;
    EXPECT_EQ(c.rope.theta, e.theta) << e.type;
    EXPECT_EQ(c.bos_token_id, e.bos) << e.type;
    EXPECT_EQ(c.eos_token_ids, e.eos) << e.type;
    EXPECT_EQ(c.sliding_window, e.window) << e.type;
    EXPECT_EQ(c.activation, std::string(e.type).starts_with("gemma") ? Activation::gelu_tanh : Activation::silu);
    EXPECT_EQ(c.attention_dropout, 0) << e.type;
    EXPECT_EQ(c.initializer_range, 0.02) << e.type;
    EXPECT_EQ(c.torch_dtype, "float32") << e.type;
  }
}

TEST(ModelConfig, KeyValueHeadsAndHeadDimMayBeAbsentOrNull) {
  EXPECT_EQ(parse("llama", R"({"num_key_value_heads": "drop"})").num_kv_heads, 4);
  EXPECT_EQ(parse("llama", R"({"num_key_value_heads": null})").num_kv_heads, 4);
  EXPECT_EQ(parse("llama", R"({"head_dim": "drop"})").head_dim, 4);
  EXPECT_EQ(parse("llama", R"({"head_dim": null})").head_dim, 4);
  EXPECT_EQ(parse("smollm3", R"({"num_key_value_heads": "drop", "num_attention_heads": 8})").num_kv_heads, 4);
  EXPECT_EQ(parse("mistral", R"({"num_key_value_heads": "drop", "num_attention_heads": 16})").num_kv_heads, 8);
  EXPECT_EQ(parse("mistral", R"({"num_key_value_heads": null, "num_attention_heads": 16})").num_kv_heads, 16);
  EXPECT_EQ(parse("qwen3", R"({"head_dim": "drop"})").head_dim, 128);
  EXPECT_EQ(parse("gemma", R"({"head_dim": "drop"})").head_dim, 256);
  EXPECT_EQ(parse("qwen2", R"({"head_dim": "drop"})").head_dim, 4);
}

TEST(ModelConfig, TypeOfTheWeightsInBothSpellings) {
  EXPECT_EQ(parse("llama", R"({"torch_dtype": "bfloat16"})").torch_dtype, "bfloat16");
  EXPECT_EQ(parse("llama", R"({"dtype": "float16"})").torch_dtype, "float16");
  EXPECT_EQ(parse("llama", R"({"dtype": "float16", "torch_dtype": "bfloat16"})").torch_dtype, "float16");
  EXPECT_EQ(parse("llama", R"({"torch_dtype": "torch.bfloat16"})").torch_dtype, "bfloat16");
  EXPECT_THAT(config_error(config_with("llama", R"({"dtype": "bfloat17"})")),
              HasSubstr("config.json: dtype is \"bfloat17\""));
}

TEST(ModelConfig, EndTokensMayBeOneOrMany) {
  EXPECT_THAT(parse("llama", R"({"eos_token_id": 7})").eos_token_ids, ElementsAre(7));
  EXPECT_THAT(parse("llama", R"({"eos_token_id": [7, 9, 11]})").eos_token_ids, ElementsAre(7, 9, 11));
  EXPECT_THAT(parse("llama", R"({"eos_token_id": null})").eos_token_ids, IsEmpty());
  EXPECT_EQ(parse("llama", R"({"bos_token_id": null})").bos_token_id, std::nullopt);
  EXPECT_EQ(parse("llama", R"({"bos_token_id": 0})").bos_token_id, 0);
  for (const char* bad : {"-1", "[1, -1]", "1.5", "\"2\"", "[[1]]", "4294967296", "true"}) {
    EXPECT_THAT(config_error(config_with("llama", std::string(R"({"eos_token_id": )") + bad + "}")),
                StartsWith("config.json: eos_token_id is "))
        << bad;
  }
}

TEST(ModelConfig, ActivationsUnderAllTheirNames) {
  const auto activation = [](const std::string& name) {
    return parse("llama", R"({"hidden_act": ")" + name + "\"}").activation;
  };
  EXPECT_EQ(activation("silu"), Activation::silu);
  EXPECT_EQ(activation("swish"), Activation::silu);
  EXPECT_EQ(activation("gelu"), Activation::gelu);
  EXPECT_EQ(activation("gelu_new"), Activation::gelu_tanh);
  EXPECT_EQ(activation("gelu_pytorch_tanh"), Activation::gelu_tanh);
  EXPECT_EQ(activation("relu"), Activation::relu);
}

TEST(ModelConfig, Gpt2HasItsOwnKeys) {
  const ModelConfig c = parse_model_config(
      R"({"model_type": "gpt2", "vocab_size": 50257, "n_embd": 768, "n_layer": 12, "n_head": 12})", "f");
  EXPECT_EQ(c.hidden_size, 768);
  EXPECT_EQ(c.intermediate_size, 4 * 768);
  EXPECT_EQ(c.num_layers, 12);
  EXPECT_EQ(c.num_kv_heads, 12);
  EXPECT_EQ(c.head_dim, 64);
  EXPECT_EQ(c.max_positions, 1024);
  EXPECT_EQ(c.norm_epsilon, 1e-5);
  EXPECT_EQ(c.activation, Activation::gelu_tanh);
  EXPECT_EQ(c.rope.type, RopeType::none);
  EXPECT_TRUE(c.tie_word_embeddings);
  EXPECT_EQ(c.attention_dropout, 0.1);
  EXPECT_EQ(c.hidden_dropout, 0.1);
  EXPECT_EQ(c.embedding_dropout, 0.1);
  EXPECT_THAT(c.eos_token_ids, ElementsAre(50256));
  EXPECT_EQ(c.attention_scale, 0);
  EXPECT_FALSE(c.scale_attention_by_inverse_layer);

  const ModelConfig d =
      parse_model_config(R"({"model_type": "gpt2", "vocab_size": 50, "hidden_size": 12, "num_hidden_layers": 1,
      "num_attention_heads": 4, "n_inner": 20, "activation_function": "gelu", "scale_attn_weights": false,
      "n_positions": 7, "scale_attn_by_inverse_layer_idx": true, "attn_pdrop": 0, "resid_pdrop": 0.2,
      "embd_pdrop": 0.3})",
                         "f");
  EXPECT_EQ(d.hidden_size, 12);
  EXPECT_EQ(d.head_dim, 3);  // no rope: odd is fine
  EXPECT_EQ(d.intermediate_size, 20);
  EXPECT_EQ(d.activation, Activation::gelu);
  EXPECT_EQ(d.attention_scale, 1);
  EXPECT_TRUE(d.scale_attention_by_inverse_layer);
  EXPECT_EQ(d.attention_dropout, 0);
  EXPECT_EQ(d.hidden_dropout, 0.2);
  EXPECT_EQ(d.embedding_dropout, 0.3);
  EXPECT_THAT(d.eos_token_ids, IsEmpty());  // 50256 is not in that vocabulary
  EXPECT_THAT(config_error(R"({"model_type": "gpt2", "vocab_size": 50, "n_embd": 16, "n_layer": 1, "n_head": 3})"),
              HasSubstr("config.json: n_head is 3; expected a divisor of n_embd 16"));
}

TEST(ModelConfig, BiasesAndMultipliers) {
  EXPECT_TRUE(parse("llama", R"({"attention_bias": true})").attention_bias);
  EXPECT_TRUE(parse("llama", R"({"mlp_bias": true})").mlp_bias);
  const ModelConfig plain = parse("granite");
  EXPECT_EQ(plain.attention_scale, 1);  // not 1/sqrt(head_dim)
  const ModelConfig c =
      parse("granite",
            R"({"embedding_multiplier": 12, "residual_multiplier": 0.22, "attention_multiplier": 0.015625,
         "logits_scaling": 8})");
  EXPECT_EQ(c.embedding_multiplier, 12);
  EXPECT_EQ(c.residual_multiplier, 0.22);
  EXPECT_EQ(c.attention_scale, 0.015625);
  EXPECT_EQ(c.logits_scaling, 8);
}

TEST(ModelConfig, GemmaMeansTanhWhereItSaysGelu) {
  EXPECT_EQ(parse("gemma", R"({"hidden_act": "gelu"})").activation, Activation::gelu_tanh);
  EXPECT_EQ(parse("gemma", R"({"hidden_activation": "gelu_pytorch_tanh", "hidden_act": "gelu"})").activation,
            Activation::gelu_tanh);
  EXPECT_EQ(parse("gemma2", R"({"hidden_act": "silu", "hidden_activation": "gelu_pytorch_tanh"})").activation,
            Activation::gelu_tanh);
  EXPECT_EQ(parse("gemma2", R"({"hidden_activation": "gelu"})").activation, Activation::gelu);
  for (const char* type : {"gemma", "gemma2", "gemma3_text"})
    EXPECT_EQ(parse(type).embedding_multiplier, 4);  // sqrt(16)
}

TEST(ModelConfig, GemmaCapsAreOffWhenNullAndOnByDefaultInGemma2) {
  EXPECT_EQ(parse("gemma2").attention_softcap, 50);
  EXPECT_EQ(parse("gemma2").final_softcap, 30);
  EXPECT_EQ(parse("gemma2", R"({"attn_logit_softcapping": null})").attention_softcap, 0);
  EXPECT_EQ(parse("gemma2", R"({"final_logit_softcapping": 6})").final_softcap, 6);
  EXPECT_EQ(parse("gemma3_text").attention_softcap, 0);
  EXPECT_EQ(parse("gemma3_text").final_softcap, 0);
  EXPECT_EQ(parse("gemma3_text", R"({"final_logit_softcapping": 6})").final_softcap, 6);
  EXPECT_EQ(parse("gemma3_text", R"({"attn_logit_softcapping": null})").attention_softcap, 0);
  EXPECT_THAT(config_error(config_with("gemma3_text", R"({"attn_logit_softcapping": 4})")),
              StartsWith("config.json: attn_logit_softcapping is 4; expected null in a gemma3_text model"));
  EXPECT_EQ(parse("gemma2").attention_scale, 1.0 / 16.0);  // 256^-0.5
  EXPECT_EQ(parse("gemma3_text", R"({"query_pre_attn_scalar": 144})").attention_scale, 1.0 / 12.0);
}

TEST(ModelConfig, SlidingLayersOfEachFamily) {
  EXPECT_THAT(parse("gemma2").layer_is_sliding, ElementsAre(true, false, true, false));
  EXPECT_THAT(parse("gemma3_text", R"({"num_hidden_layers": 7})").layer_is_sliding,
              ElementsAre(true, true, true, true, true, false, true));
  EXPECT_THAT(parse("gemma3_text", R"({"sliding_window_pattern": 2})").layer_is_sliding,
              ElementsAre(true, false, true, false));
  EXPECT_THAT(parse("gemma3_text").layer_is_sliding, ElementsAre(true, true, true, true));
  EXPECT_THAT(
      parse("gemma2", R"({"layer_types": ["full_attention", "full_attention", "sliding_attention", "full_attention"]})")
          .layer_is_sliding,
      ElementsAre(false, false, true, false));
  EXPECT_EQ(parse("mistral", R"({"sliding_window": null})").sliding_window, 0);
  EXPECT_EQ(parse("mistral", R"({"sliding_window": 7})").sliding_window, 7);
  EXPECT_EQ(parse("phi3", R"({"sliding_window": 2047})").sliding_window, 2047);
  EXPECT_EQ(parse("llama", R"({"sliding_window": 7})").sliding_window, 0);  // no key of that family

  EXPECT_EQ(
      parse("qwen2", R"({"sliding_window": 7, "use_sliding_window": false, "max_window_layers": 1})").sliding_window,
      0);
  const ModelConfig qwen =
      parse("qwen2", R"({"sliding_window": 7, "use_sliding_window": true, "max_window_layers": 1})");
  EXPECT_EQ(qwen.sliding_window, 7);
  EXPECT_THAT(qwen.layer_is_sliding, ElementsAre(false, true, true, true));
  EXPECT_EQ(parse("qwen3", R"({"use_sliding_window": true})").sliding_window, 0);  // from layer 28
  EXPECT_EQ(parse("qwen3", R"({"use_sliding_window": true, "max_window_layers": 0})").sliding_window, 4096);
}

TEST(ModelConfig, SmolLm3HasLayersWithoutRope) {
  EXPECT_THAT(parse("smollm3", R"({"num_hidden_layers": 8})").layer_has_rope,
              ElementsAre(true, true, true, false, true, true, true, false));
  EXPECT_THAT(parse("smollm3", R"({"no_rope_layer_interval": 2})").layer_has_rope,
              ElementsAre(true, false, true, false));
  EXPECT_THAT(parse("smollm3", R"({"no_rope_layers": [0, 1, 1, 0, 1]})").layer_has_rope,
              ElementsAre(false, true, true, false));
  const ModelConfig c =
      parse("smollm3", R"({"no_rope_layers": [0, 1, 1, 0], "use_sliding_window": true, "sliding_window": 5})");
  EXPECT_EQ(c.sliding_window, 5);
  EXPECT_THAT(c.layer_is_sliding, ElementsAre(true, false, false, true));
  EXPECT_EQ(parse("smollm3", R"({"use_sliding_window": false, "sliding_window": 5})").sliding_window, 0);
  for (const char* bad : {"[0, 1]", "3", "[0, 1, 2, 1]", "[0, 1, \"1\", 1]"}) {
    EXPECT_THAT(config_error(config_with("smollm3", std::string(R"({"no_rope_layers": )") + bad + "}")),
                StartsWith("config.json: no_rope_layers is "))
        << bad;
  }
}

TEST(ModelConfig, LayerTypesThatDoNotFitAreRefused) {
  const auto error = [](const std::string& type, const std::string& changes) {
    return config_error(config_with(type, changes));
  };
  EXPECT_THAT(error("gemma2", R"({"layer_types": ["full_attention"]})"),
              HasSubstr("layer_types has 1 elements; expected one for each of 4"));
  EXPECT_THAT(error("gemma2", R"({"layer_types": ["full_attention", "a", "b", "c"]})"),
              HasSubstr("layer_types holds \"a\""));
  EXPECT_THAT(error("gemma2", R"({"layer_types": "full_attention"})"), HasSubstr("layer_types is \"full_attention\""));
  EXPECT_THAT(error("gemma2", R"({"sliding_window": null})"), HasSubstr("sliding_window is off, but 2 layers"));
  EXPECT_THAT(
      error("qwen2", R"({"layer_types": ["full_attention", "full_attention", "full_attention", "sliding_attention"]})"),
      HasSubstr("sliding_window is off"));
  EXPECT_THAT(error("mistral",
                    R"({"layer_types": ["full_attention", "full_attention", "full_attention", "sliding_attention"]})"),
              HasSubstr("layer_types"));
  EXPECT_THAT(
      error("llama", R"({"layer_types": ["full_attention", "full_attention", "full_attention", "sliding_attention"]})"),
      HasSubstr("layer_types"));
  EXPECT_EQ(
      error("llama", R"({"layer_types": ["full_attention", "full_attention", "full_attention", "full_attention"]})"),
      "no error");
}

TEST(ModelConfig, OtherModelsAreRefusedByName) {
  EXPECT_THAT(config_error(config_with("mixtral", R"({"num_local_experts": 8})")),
              AllOf(StartsWith("config.json: model_type is \"mixtral\", which is not supported (a mixture of experts)"),
                    HasSubstr("llama")));
  EXPECT_THAT(config_error(config_with("qwen3_moe")),
              HasSubstr("\"qwen3_moe\", which is not supported (a mixture of experts)"));
  EXPECT_THAT(
      config_error(config_with("gemma4", R"({"text_config": {"num_experts": 128}, "vision_config": {"a": 1}})")),
      HasSubstr("\"gemma4\", which is not supported (a mixture of experts, images)"));
  EXPECT_THAT(
      config_error(config_with("gemma4", R"({"text_config": {"num_experts": null}, "vision_config": {"a": 1}})")),
      HasSubstr("\"gemma4\", which is not supported (images)"));
  EXPECT_THAT(config_error(config_with("qwen3_5_moe", R"({"text_config": {"linear_conv_kernel_dim": 4}})")),
              HasSubstr("\"qwen3_5_moe\", which is not supported (a mixture of experts, layers without attention)"));
  EXPECT_THAT(config_error(config_with("deepseek_v3", R"({"n_routed_experts": 256, "kv_lora_rank": 512})")),
              HasSubstr("(a mixture of experts, latent attention)"));
  EXPECT_THAT(config_error(config_with("llamma")), HasSubstr("did you mean llama?"));
  EXPECT_THAT(config_error("{}"), StartsWith("config.json: model_type is absent"));
  EXPECT_THAT(config_error(R"({"model_type": 7})"), StartsWith("config.json: model_type is 7"));
}

TEST(ModelConfig, FeaturesThatAreNotSupportedAreRefusedByName) {
  const auto error = [](const std::string& changes) { return config_error(config_with("llama", changes)); };
  EXPECT_THAT(error(R"({"quantization_config": {"quant_method": "fp8"}})"),
              AllOf(StartsWith("config.json: quantization_config is "), HasSubstr("quantized")));
  EXPECT_EQ(error(R"({"quantization_config": null})"), "no error");
  EXPECT_THAT(error(R"({"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": true}})"),
              StartsWith("config.json: quantization_config.load_in_8bit is true; expected false"));
  EXPECT_THAT(error(R"({"quantization_config": {}})"),
              StartsWith("config.json: quantization_config.load_in_4bit is absent"));
  EXPECT_THAT(error(R"({"is_causal": false})"), StartsWith("config.json: is_causal is false"));
  EXPECT_THAT(config_error(config_with("gemma3_text", R"({"use_bidirectional_attention": true})")),
              StartsWith("config.json: use_bidirectional_attention is true"));
  EXPECT_THAT(config_error(config_with("gpt2", R"({"add_cross_attention": true})")),
              StartsWith("config.json: add_cross_attention is true"));
}

TEST(ModelConfig, FourBitsOfBitsandbytesAreKnown) {
  const std::string quantized = config_with("llama", R"({"quantization_config": {"quant_method": "bitsandbytes",
      "_load_in_4bit": true, "load_in_4bit": true, "load_in_8bit": false, "bnb_4bit_quant_type": "nf4"}})");
  EXPECT_TRUE(parse_model_config(quantized, "config.json").is_bitsandbytes);
  EXPECT_FALSE(parse_model_config(config_with("llama"), "config.json").is_bitsandbytes);
}

TEST(ModelConfig, UnknownKeysAreFine) {
  EXPECT_EQ(
      parse("llama", R"({"pretraining_tp": 2, "auto_map": {"a": []}, "transformers_version": "5.24.0"})").num_layers,
      4);
}

TEST(ModelConfig, BadValuesAreRefusedByKey) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": "drop"})",
       "num_attention_heads is 3; expected a divisor of hidden_size 16"},
      {R"({"num_key_value_heads": 3})", "num_key_value_heads is 3; expected a divisor of num_attention_heads 4"},
      {R"({"num_key_value_heads": 8})", "num_key_value_heads is 8"},
      {R"({"head_dim": 7})", "head_dim is 7"},
      {R"({"head_dim": 0})", "head_dim is 0"},
      {R"({"hidden_size": -16})", "hidden_size is -16"},
      {R"({"hidden_size": 16.5})", "hidden_size is 16.5"},
      {R"({"hidden_size": "16"})", "hidden_size is \"16\""},
      {R"({"hidden_size": true})", "hidden_size is true"},
      {R"({"hidden_size": "drop"})", "hidden_size is absent"},
      {R"({"intermediate_size": "drop"})", "intermediate_size is absent"},
      {R"({"num_hidden_layers": "drop"})", "num_hidden_layers is absent"},
      {R"({"num_attention_heads": "drop"})", "num_attention_heads is absent"},
      {R"({"vocab_size": "drop"})", "vocab_size is absent"},
      {R"({"num_hidden_layers": 0})", "num_hidden_layers is 0"},
      {R"({"num_hidden_layers": [1]})", "num_hidden_layers is [1]"},
      {R"({"num_attention_heads": 0})", "num_attention_heads is 0"},
      {R"({"vocab_size": 0})", "vocab_size is 0"},
      {R"({"vocab_size": 4611686018427387904})", "vocab_size is 4611686018427387904"},
      {R"({"vocab_size": 18446744073709551615})", "vocab_size is 18446744073709551615"},
      {R"({"vocab_size": 99999999999999999999999})", "vocab_size is "},
      {R"({"num_attention_heads": 16384, "head_dim": 16384})", "num_attention_heads is 16384"},
      {R"({"rms_norm_eps": -1.0})", "rms_norm_eps is -1.0"},
      {R"({"rms_norm_eps": "small"})", "rms_norm_eps is \"small\""},
      {R"({"hidden_act": "sigluu"})", "hidden_act is \"sigluu\""},
      {R"({"hidden_act": ["silu"]})", "hidden_act is [\"silu\"]"},
      {R"({"tie_word_embeddings": "yes"})", "tie_word_embeddings is \"yes\""},
      {R"({"attention_dropout": 1.5})", "attention_dropout is 1.5"},
      {R"({"initializer_range": -0.1})", "initializer_range is -0.1"},
      {R"({"max_position_embeddings": 0})", "max_position_embeddings is 0"},
  };
  for (const auto& [changes, expected] : cases) {
    EXPECT_THAT(config_error(config_with("llama", changes)), StartsWith("config.json: " + expected)) << changes;
  }
  EXPECT_THAT(config_error(R"({"model_type": "nemotron_h", "time_step_limit": [0.0, Infinity]})"),
              StartsWith("config.json: model_type is \"nemotron_h\""));
  EXPECT_THAT(config_error(
                  R"({"model_type": "gpt2", "vocab_size": 5, "n_embd": 4, "n_layer": 1, "n_head": 1,
              "layer_norm_epsilon": NaN})"),
              StartsWith("config.json: layer_norm_epsilon is \"NaN\"; expected a number above 0"));
  for (const char* text : {"", "[1, 2]", "{", "{\"model_type\": \"\xff\xfe\"}", "{\"model_type\": NaN}"}) {
    EXPECT_THAT(config_error(text), StartsWith("config.json: ")) << text;
  }
}

}  // namespace
}  // namespace heddle
