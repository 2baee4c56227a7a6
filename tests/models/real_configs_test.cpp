#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "model_config_cases.h"

// Configurations of published models, and parameter counts that transformers gives for them.
namespace heddle {
namespace {

std::filesystem::path data_folder() {
  const char* chosen = std::getenv("HEDDLE_DATA");
  return chosen != nullptr ? chosen : HEDDLE_SOURCE_DIR "/../shared/data";
}

std::string contents(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

/// Parameters by the papers' formulas; a tied head is counted once.
std::int64_t count_parameters(const ModelConfig& c) {
  const std::int64_t h = c.hidden_size, f = c.intermediate_size;
  const std::int64_t q = c.num_heads * c.head_dim, kv = c.num_kv_heads * c.head_dim;
  const std::int64_t table = c.vocab_size * h, head = c.tie_word_embeddings ? 0 : table;
  if (c.model_type == "gpt2") {
    const std::int64_t layer = 4 * h + h * 3 * h + 3 * h + h * h + h + h * f + f + f * h + h;
    return table + head + c.max_positions * h + c.num_layers * layer + 2 * h;
  }
  std::int64_t layer = h * q + 2 * h * kv + q * h + 3 * h * f + 2 * h;
  if (c.model_type == "qwen2") layer += q + 2 * kv;  // biases of q, k, v
  if (c.attention_bias) layer += q + 2 * kv + h;
  if (c.mlp_bias) layer += 2 * f + h;
  if (c.model_type == "qwen3" || c.model_type == "gemma3_text") layer += 2 * c.head_dim;  // q_norm, k_norm of a head
  if (c.model_type == "olmo2") layer += q + kv;                                           // of all heads
  if (c.model_type == "gemma2" || c.model_type == "gemma3_text") layer += 2 * h;          // two more norms
  return table + head + c.num_layers * layer + h;
}

TEST(RealConfigs, HaveTransformersParameterCountOrAreRefusedByName) {
  const auto list = data_folder() / "golden/families/parameter_counts.json";
  if (!std::filesystem::exists(list)) GTEST_SKIP() << "absent: " << list;
  int parsed = 0, refused = 0;
  const Json wanted = read_json_file(list);
  for (const auto& [name, want] : wanted.items()) {
    const std::string text = contents(data_folder() / "hf_configs" / name);
    const std::string error = config_error(text);
    const auto& expected =
        want["num_parameters"].is_null() ? want.value("if_supported", Json()) : want["num_parameters"];
    if (error == "no error") {
      ++parsed;
      ASSERT_TRUE(expected.is_number()) << name << " is not to be supported";
      EXPECT_EQ(count_parameters(parse_model_config(text, name)), expected.get<std::int64_t>()) << name;
      continue;
    }
    ++refused;
    EXPECT_EQ(error.find('\n'), std::string::npos);
    if (want["num_parameters"].is_number()) {
      ASSERT_TRUE(want.contains("may_refuse")) << name << ": " << error;
      EXPECT_THAT(error, testing::HasSubstr("quanti")) << name;
    } else if (want["model_type"].is_string()) {
      EXPECT_THAT(error, testing::HasSubstr(want["model_type"].get<std::string>())) << name;
    }
  }
  EXPECT_GE(parsed, 50);
  std::cout << parsed << " configurations are read, " << refused << " are refused\n";
}

/// All fields as text.
std::string describe(const ModelConfig& c) {
  const auto rope = [](const RopeConfig& r) {
    return fmt::format("[{} {} {} {} {} {} {} {} {} {} {} {} {} {} {}]", static_cast<int>(r.type), r.theta,
                       r.partial_rotary_factor, r.factor, r.original_max_position_embeddings, r.low_freq_factor,
                       r.high_freq_factor, r.beta_fast, r.beta_slow, r.mscale, r.mscale_all_dim, r.truncate,
                       r.attention_factor.value_or(-1), r.short_factor.size(), r.long_factor.size());
  };
  const auto flags = [](const std::vector<bool>& values) {
    std::string all;
    for (const bool value : values) all += value ? '1' : '0';
    return all;
  };
  std::string all = fmt::format("{} {} {} {} {} {} {} {} {} eps {} tie {} act {} bias {} {}", c.model_type,
                                c.vocab_size, c.hidden_size, c.intermediate_size, c.num_layers, c.num_heads,
                                c.num_kv_heads, c.head_dim, c.max_positions, c.norm_epsilon, c.tie_word_embeddings,
                                static_cast<int>(c.activation), c.attention_bias, c.mlp_bias);
  all += fmt::format(" rope {} {} scale {} window {} {} {} caps {} {} multipliers {} {} {}", rope(c.rope),
                     c.local_rope ? rope(*c.local_rope) : "", c.attention_scale, c.sliding_window,
                     flags(c.layer_is_sliding), flags(c.layer_has_rope), c.attention_softcap, c.final_softcap,
                     c.embedding_multiplier, c.residual_multiplier, c.logits_scaling);
  all += fmt::format(" init {} dropout {} {} {} inverse {} bos {} eos {} {}", c.initializer_range, c.attention_dropout,
                     c.hidden_dropout, c.embedding_dropout, c.scale_attention_by_inverse_layer,
                     c.bos_token_id.value_or(-1), fmt::join(c.eos_token_ids, ","), c.torch_dtype);
  return all;
}

TEST(RealConfigs, TransformersFourAndFiveSpellTheSameModel) {
  const auto folder = data_folder() / "golden/families";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "absent: " << folder;
  int compared = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (!std::filesystem::exists(entry.path() / "config_v4.json")) continue;
    const auto parsed = [&](const char* name) {
      return describe(parse_model_config(contents(entry.path() / name), (entry.path() / name).string()));
    };
    EXPECT_EQ(parsed("config.json"), parsed("config_v4.json"));
    ++compared;
  }
  EXPECT_GT(compared, 0);
}

}  // namespace
}  // namespace heddle
