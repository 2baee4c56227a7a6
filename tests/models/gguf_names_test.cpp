#include "models/gguf_names.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace heddle {
namespace {

std::string gguf(std::string_view model_type, std::string_view name) {
  const auto found = to_gguf_name(model_type, name);
  return found ? found->name : "none";
}

TEST(GgufNames, AreThoseOfTheConverterOfLlamaCpp) {  // gguf-py's constants.py and tensor_mapping.py
  EXPECT_EQ(gguf("llama", "model.embed_tokens.weight"), "token_embd.weight");
  EXPECT_EQ(gguf("llama", "model.layers.12.self_attn.o_proj.weight"), "blk.12.attn_output.weight");
  EXPECT_EQ(gguf("mistral", "model.layers.0.post_attention_layernorm.weight"), "blk.0.ffn_norm.weight");
  EXPECT_EQ(gguf("llama", "lm_head.weight"), "output.weight");
  EXPECT_EQ(gguf("qwen2", "model.layers.3.self_attn.q_proj.bias"), "blk.3.attn_q.bias");
  EXPECT_EQ(gguf("qwen3", "model.layers.3.self_attn.k_norm.weight"), "blk.3.attn_k_norm.weight");
  EXPECT_EQ(gguf("gemma2", "model.layers.3.pre_feedforward_layernorm.weight"), "blk.3.ffn_norm.weight");
  EXPECT_EQ(gguf("gemma2", "model.layers.3.post_feedforward_layernorm.weight"), "blk.3.post_ffw_norm.weight");
  EXPECT_EQ(gguf("gemma3_text", "model.layers.3.post_attention_layernorm.weight"), "blk.3.post_attention_norm.weight");
  EXPECT_EQ(gguf("phi3", "model.layers.3.mlp.gate_up_proj.weight"), "blk.3.ffn_up.weight");
  EXPECT_EQ(gguf("phi3", "model.layers.3.self_attn.qkv_proj.weight"), "blk.3.attn_qkv.weight");
  EXPECT_EQ(gguf("olmo2", "model.layers.3.post_attention_layernorm.weight"), "blk.3.post_attention_norm.weight");
  EXPECT_EQ(gguf("gpt2", "transformer.h.7.attn.c_proj.bias"), "blk.7.attn_output.bias");
  EXPECT_EQ(gguf("gpt2", "transformer.wpe.weight"), "position_embd.weight");
}

TEST(GgufNames, GoBothWays) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> names = {
      {"llama", {"model.norm.weight", "model.layers.10.mlp.down_proj.weight", "model.layers.0.self_attn.k_proj.bias"}},
      {"gemma3_text", {"model.layers.1.self_attn.q_norm.weight", "model.layers.1.input_layernorm.weight"}},
      {"gpt2", {"transformer.h.11.mlp.c_fc.weight", "transformer.ln_f.bias", "transformer.h.0.ln_2.bias"}}};
  for (const auto& [model_type, list] : names) {
    for (const std::string& name : list) {
      const auto there = to_gguf_name(model_type, name);
      ASSERT_TRUE(there) << name;
      const auto back = from_gguf_name(model_type, there->name);
      ASSERT_TRUE(back) << there->name;
      EXPECT_EQ(back->name, name);
      EXPECT_EQ(back->change, there->change);
    }
  }
}

TEST(GgufNames, ChangesAreThoseOfTheConverter) {
  const auto change = [](const char* model_type, const char* name) { return from_gguf_name(model_type, name)->change; };
  EXPECT_EQ(change("llama", "blk.0.attn_q.weight"), GgufChange::pair_rows);
  EXPECT_EQ(change("llama", "blk.0.attn_k.bias"), GgufChange::pair_rows);
  EXPECT_EQ(change("llama", "blk.0.attn_v.weight"), GgufChange::none);
  EXPECT_EQ(change("granite", "blk.0.attn_k.weight"), GgufChange::pair_rows);
  EXPECT_EQ(change("qwen2", "blk.0.attn_q.weight"), GgufChange::none);
  EXPECT_EQ(change("olmo2", "blk.0.attn_q.weight"), GgufChange::none);
  EXPECT_EQ(change("gemma", "output_norm.weight"), GgufChange::add_one);
  EXPECT_EQ(change("gemma3_text", "blk.0.attn_q_norm.weight"), GgufChange::add_one);
  EXPECT_EQ(change("gpt2", "blk.0.ffn_down.weight"), GgufChange::transpose);
  EXPECT_EQ(change("gpt2", "blk.0.ffn_down.bias"), GgufChange::none);
}

TEST(GgufNames, NamesOfNoTensorHaveNone) {
  for (const char* name : {"blk.0.attn_q", "blk.x.attn_q.weight", "blk..attn_q.weight", "blk.0.ffn_gate_inp.weight",
                           "rope_freqs.weight", "", "blk.0", "attn_q.weight"}) {
    EXPECT_FALSE(from_gguf_name("llama", name)) << name;
  }
  EXPECT_FALSE(from_gguf_name("phi3", "blk.0.ffn_gate.weight"));
  EXPECT_FALSE(from_gguf_name("mamba", "token_embd.weight"));
  EXPECT_FALSE(gguf_architecture("mamba"));
  EXPECT_FALSE(model_type_of_gguf("command-r"));
  EXPECT_EQ(gguf_architecture("mistral"), "llama");
  EXPECT_EQ(model_type_of_gguf("llama"), "llama");
}

TEST(GgufNames, PairedRowsAreInterleavedHalvesOfEachHead) {
  // reshape(heads, 2, D/2).swapaxes(1, 2): the file's rows of two heads of 6 by Hugging Face's numbers.
  const std::vector<std::int64_t> rows_in_file = {0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11};
  for (std::size_t place = 0; place < rows_in_file.size(); ++place) {
    EXPECT_EQ(paired_row(rows_in_file[place], 6), static_cast<std::int64_t>(place));
    EXPECT_EQ(unpaired_row(static_cast<std::int64_t>(place), 6), rows_in_file[place]);
  }
}

}  // namespace
}  // namespace heddle
