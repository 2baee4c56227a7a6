#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/threads.h"
#include "kernels/cpu/table.h"
#include "models/model.h"
#include "train/compile.h"
#include "train/generate.h"
#include "train/weights.h"

// A text that grows beyond the length where longrope changes must go on as if all of it had been the prompt.
namespace heddle {
namespace {

constexpr std::int64_t kOriginal = 8, kNewTokens = 10;

ModelConfig longrope_model() {
  return parse_model_config(R"({"model_type": "phi3", "vocab_size": 50, "hidden_size": 16, "intermediate_size": 24,
      "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 64, "initializer_range": 0.4,
      "bos_token_id": null, "eos_token_id": null, "original_max_position_embeddings": 8,
      "rope_scaling": {"type": "longrope", "short_factor": [1, 1, 1, 1], "long_factor": [1, 3, 5, 9]}})",
                            "config.json");
}

struct Text {
  std::vector<std::int32_t> ids;
  std::vector<std::vector<float>> logits;  // before each new id
};

Text text_after(const std::vector<std::int32_t>& prompt, std::int64_t new_tokens, bool with_limits) {
  const ModelConfig model = longrope_model();
  const auto length = static_cast<std::int64_t>(prompt.size());
  const CompiledRun compiled = compile_generation(model, {}, DType::f32, length, length + new_tokens, threads());
  Executor executor(compiled.program_list(), compiled.plan, cpu::find_kernel, compiled.threads);
  initialize_weights(compiled.parameters, 5, compiled.sharding, executor);
  const TensorView logits = executor.persistent(labels::logits);
  Text text;
  const auto keep = [&](std::int32_t) {
    text.logits.emplace_back(logits.as<float>(), logits.as<float>() + logits.elements());
  };
  const auto limits = with_limits ? compiled.cache_limits : std::vector<std::int64_t>{};
  text.ids = generate(executor, static_cast<std::size_t>(compiled.generate), prompt, new_tokens, {}, {}, limits, keep);
  return text;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double greatest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) greatest = std::max(greatest, std::abs(static_cast<double>(a[i] - b[i])));
  return greatest;
}

TEST(Generate, MakesTheCacheAnewWhereLongropeChanges) {
  EXPECT_EQ(key_cache_limits(longrope_model()), std::vector<std::int64_t>{kOriginal});
  const std::vector<std::int32_t> prompt = {7, 31, 2, 44, 19};
  const Text text = text_after(prompt, kNewTokens, true), mixed = text_after(prompt, kNewTokens, false);
  double greatest_mixed = 0;
  for (std::size_t made = 0; made < text.logits.size(); ++made) {
    const std::vector<std::int32_t> so_far(text.ids.begin(), text.ids.begin() + static_cast<std::ptrdiff_t>(5 + made));
    // Two orders of sums in fp32, on logits of about one.
    EXPECT_LT(distance(text.logits[made], text_after(so_far, 1, true).logits[0]), 1e-5) << so_far.size() << " ids";
    greatest_mixed = std::max(greatest_mixed, distance(text.logits[made], mixed.logits[made]));
  }
  EXPECT_GT(greatest_mixed, 1e-2);  // what keeping the old keys would give
}

}  // namespace
}  // namespace heddle
