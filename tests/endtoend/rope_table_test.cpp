#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <numbers>
#include <numeric>

#include "base/error.h"
#include "kernels/cpu/kernels.h"
#include "models/model.h"
#include "program/builder.h"

// Tables of cos and sin from a config.json, through the program, to the kernel, compared with the formulas of
// transformers' modeling_rope_utils.py (5.24) in long double: the same bits once rounded to float.
namespace heddle {
namespace {

using Real = long double;
constexpr Real kPi = std::numbers::pi_v<Real>;
constexpr int kDimensions = 16;
constexpr int kPairs = kDimensions / 2;

/// theta^(-2j/R)
Real standard(Real theta, int j) { return std::pow(theta, -2.0L * static_cast<Real>(j) / kDimensions); }

struct Rope {
  const char* name;
  const char* keys;                                 // members of the config.json
  std::function<Real(int pair, int ids)> inv_freq;  // of a document of so many ids
  Real attention_factor = 1.0L;
};

Real dynamic_frequency(int j, int ids) {  // theta 100, factor 4, max_position_embeddings 24
  const Real stretch = ids > 24 ? 4.0L * static_cast<Real>(ids) / 24.0L - 3.0L : 1.0L;
  return standard(100.0L * std::pow(stretch, 16.0L / 14.0L), j);
}

Real yarn_frequency(int j, int) {  // theta 500, factor 4, original 16, beta_fast 4, beta_slow 0.5
  const auto pair_with = [](Real rotations) {
    return kDimensions * std::log(16.0L / (rotations * 2.0L * kPi)) / (2.0L * std::log(500.0L));
  };
  const Real low = std::max(std::floor(pair_with(4.0L)), 0.0L), high = std::min(std::ceil(pair_with(0.5L)), 15.0L);
  const Real ramp = std::clamp((static_cast<Real>(j) - low) / (high - low), 0.0L, 1.0L);
  const Real kept = standard(500.0L, j);
  return kept / 4.0L * ramp + kept * (1.0L - ramp);
}

Real llama3_frequency(int j, int) {  // theta 500, factor 8, low_freq_factor 1, high_freq_factor 4, original 32
  const Real kept = standard(500.0L, j), turns = 32.0L * kept / (2.0L * kPi);
  if (turns < 1.0L) return kept / 8.0L;
  if (turns > 4.0L) return kept;
  const Real smooth = (turns - 1.0L) / 3.0L;
  return (1.0L - smooth) * kept / 8.0L + smooth * kept;
}

Real longrope_frequency(int j, int ids) {  // factors 1, 1.25, 1.5.. and, beyond 16 ids, 1, 4, 7..
  return standard(10000.0L, j) / (1.0L + static_cast<Real>(j) * (ids > 16 ? 3.0L : 0.25L));
}

std::vector<Rope> ropes() {
  const Real yarn_factor = 0.1L * std::log(4.0L) + 1.0L;
  const Real longrope_factor = std::sqrt(1.0L + std::log(4.0L) / std::log(16.0L));  // 64 positions, 16 before
  return {
      {"default", R"("rope_theta": 500)", [](int j, int) { return standard(500.0L, j); }},
      {"linear", R"("rope_theta": 10000, "rope_scaling": {"rope_type": "linear", "factor": 2.5})",
       [](int j, int) { return standard(10000.0L, j) / 2.5L; }},
      {"dynamic",
       R"("max_position_embeddings": 24, "rope_theta": 100, "rope_scaling": {"rope_type": "dynamic", "factor": 4})",
       dynamic_frequency},
      {"yarn", R"("rope_theta": 500, "rope_scaling": {"rope_type": "yarn", "factor": 4, "beta_fast": 4,
                  "beta_slow": 0.5, "original_max_position_embeddings": 16})",
       yarn_frequency, yarn_factor},
      {"llama3", R"("rope_theta": 500, "rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
                    "high_freq_factor": 4, "original_max_position_embeddings": 32})",
       llama3_frequency},
      {"longrope", R"("max_position_embeddings": 64, "rope_scaling": {"rope_type": "longrope",
                      "original_max_position_embeddings": 16, "short_factor": [1, 1.25, 1.5, 1.75, 2, 2.25, 2.5, 2.75],
                      "long_factor": [1, 4, 7, 10, 13, 16, 19, 22]})",
       longrope_frequency, longrope_factor},
  };
}

/// Attributes of the table that a program of the model makes.
Attributes table_attributes(const Rope& rope, ProgramBuilder::Purpose purpose) {
  const std::string text = fmt::format(
      R"({{"model_type": "llama", "vocab_size": 8, "hidden_size": 16, "intermediate_size": 8, "num_hidden_layers": 1,
           "num_attention_heads": 1, {}}})",
      rope.keys);
  Parameters parameters;
  ProgramBuilder builder({.name = "p", .purpose = purpose, .token_capacity = 256, .cache_capacity = 256}, parameters);
  emit_model(builder, parse_model_config(text, rope.name));
  for (const auto& instruction : builder.take().instructions) {
    if (instruction.operation->name == "rope_table") return instruction.attributes;
  }
  ADD_FAILURE() << rope.name << ": the program has no rope_table";
  return {};
}

void expect_table(const Rope& rope, const Attributes& attributes, const std::vector<std::int32_t>& positions,
                  std::vector<std::int32_t> starts, std::int64_t past, const std::vector<int>& ids_of_token) {
  std::vector<std::int32_t> stream = positions;
  const auto tokens = static_cast<std::int64_t>(positions.size());
  std::vector<float> cos(positions.size() * kPairs), sin = cos;
  Scalars scalars;
  scalars.tokens = tokens;
  scalars.documents = static_cast<std::int64_t>(starts.size()) - 1;
  scalars.past = past;
  const std::array in{TensorView{stream.data(), DType::i32, {tokens}},
                      TensorView{starts.data(), DType::i32, {static_cast<std::int64_t>(starts.size())}}};
  const std::array out{TensorView{cos.data(), DType::f32, {tokens, kPairs}},
                       TensorView{sin.data(), DType::f32, {tokens, kPairs}}};
  cpu::rope_table({in, out, attributes, scalars, {}});
  for (std::size_t t = 0; t < positions.size(); ++t) {
    for (int j = 0; j < kPairs; ++j) {
      const Real angle = static_cast<Real>(positions[t]) * rope.inv_freq(j, ids_of_token[t]);
      const std::size_t at = t * kPairs + static_cast<std::size_t>(j);
      EXPECT_EQ(cos[at], static_cast<float>(rope.attention_factor * std::cos(angle)))
          << rope.name << " " << t << " " << j;
      EXPECT_EQ(sin[at], static_cast<float>(rope.attention_factor * std::sin(angle)))
          << rope.name << " " << t << " " << j;
    }
  }
}

TEST(RopeTables, AreTheFormulasToTheBitInAPackedStream) {
  for (const Rope& rope : ropes()) {
    // On both sides of 16 and 24 ids; a document of n ids takes n - 1 positions.
    std::vector<std::int32_t> positions, starts = {0};
    std::vector<int> ids_of_token;
    for (const std::int32_t ids : {16, 40, 2, 17, 24, 25, 100}) {
      for (std::int32_t i = 0; i + 1 < ids; ++i) {
        positions.push_back(i);
        ids_of_token.push_back(ids);
      }
      starts.push_back(static_cast<std::int32_t>(positions.size()));
    }
    expect_table(rope, table_attributes(rope, ProgramBuilder::Purpose::loss), positions, starts, 0, ids_of_token);
  }
}

TEST(RopeTables, AreTheFormulasToTheBitInGeneration) {
  for (const Rope& rope : ropes()) {
    const Attributes attributes = table_attributes(rope, ProgramBuilder::Purpose::generation);
    std::vector<std::int32_t> prompt(30);
    std::iota(prompt.begin(), prompt.end(), 0);
    expect_table(rope, attributes, prompt, {0, 30}, 0, std::vector<int>(30, 30));
    for (const std::int32_t past : {1, 15, 16, 23, 24, 200}) {
      expect_table(rope, attributes, {past}, {0, 1}, past, {past + 1});
    }
  }
}

}  // namespace
}  // namespace heddle
