#include "train/vocabulary.h"

#include <gtest/gtest.h>

#include <cstring>

#include "quantize/decode.h"

namespace heddle {
namespace {

constexpr std::int64_t kRows = 4, kColumns = 32;

/// One table [4, 32] in a type, element (v, h) = v + h/32: representable in bf16's and f16's 8 bits of 0 to 4.
class OneTable final : public WeightFiles {
 public:
  OneTable(std::string name, DType type) {
    tensor_.name = std::move(name);
    tensor_.dtype = type;
    tensor_.shape = {kRows, kColumns};
    tensor_.file = "model.safetensors";
    tensor_.end = static_cast<std::uint64_t>(storage_bytes(type, kRows * kColumns));
    bytes_.resize(tensor_.end);
    if (type == DType::q8_0) {
      fill_q8_0();
      return;
    }
    std::vector<float> values;
    for (std::int64_t i = 0; i < kRows * kColumns; ++i) values.push_back(value(i));
    convert(values.data(), DType::f32, bytes_.data(), type, kRows * kColumns);
  }
  static float value(std::int64_t i) {
    return static_cast<float>(i / kColumns) + static_cast<float>(i % kColumns) / static_cast<float>(kColumns);
  }
  std::vector<const StoredTensor*> tensors() const override { return {&tensor_}; }
  const StoredTensor* find(const std::string& name) const override { return name == tensor_.name ? &tensor_ : nullptr; }
  void read(const StoredTensor&, std::uint64_t offset, std::span<std::byte> target) const override {
    ASSERT_LE(offset + target.size(), bytes_.size());
    std::memcpy(target.data(), bytes_.data() + offset, target.size());
  }
  const std::map<std::string, std::string>& weight_map() const override { return none_; }

 private:
  /// A row is a block of scale 1/32: codes 32 v + h.
  void fill_q8_0() {
    for (std::int64_t row = 0; row < kRows; ++row) {
      std::byte* block = bytes_.data() + row * 34;
      const Float16 scale(1.0f / 32.0f);
      std::memcpy(block, &scale, sizeof(scale));
      for (std::int64_t h = 0; h < kColumns; ++h) block[2 + h] = static_cast<std::byte>(kColumns * row + h);
    }
  }

  StoredTensor tensor_;
  std::vector<std::byte> bytes_;
  std::map<std::string, std::string> none_;
};

ModelSource model_of(std::int64_t vocabulary) {
  ModelSource model;
  model.config_path = "config.json";
  model.config_text = R"({"model_type": "llama", "vocab_size": 4, "hidden_size": 32, "intermediate_size": 48,
      "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
      "tie_word_embeddings": true, "unknown_key": 7})";
  model.config = parse_model_config(model.config_text, "config.json");
  resize_vocabulary(model, vocabulary);
  return model;
}

/// The elements [begin, end) of the table, as fp32.
std::vector<float> read(const WeightFiles& files, std::int64_t begin, std::int64_t end,
                        const std::string& name = "model.embed_tokens.weight") {
  const StoredTensor& tensor = *files.find(name);
  const auto size = static_cast<std::int64_t>(dtype_bytes(tensor.dtype));
  std::vector<std::byte> bytes(static_cast<std::size_t>((end - begin) * size));
  files.read(tensor, static_cast<std::uint64_t>(begin * size), bytes);
  std::vector<float> values(static_cast<std::size_t>(end - begin));
  convert(bytes.data(), tensor.dtype, values.data(), DType::f32, end - begin);
  return values;
}

TEST(Vocabulary, NewRowsAreTheMeanAndOldOnesStay) {
  for (const DType type : {DType::f32, DType::bf16, DType::q8_0}) {
    const ModelSource model = model_of(6);
    EXPECT_EQ(model.config.vocab_size, 6);
    const auto files = resized_weights(std::make_unique<OneTable>("model.embed_tokens.weight", type), model);
    const StoredTensor& tensor = *files->find("model.embed_tokens.weight");
    EXPECT_EQ(tensor.shape, (std::vector<std::int64_t>{6, kColumns}));
    EXPECT_EQ(tensor.dtype, type == DType::q8_0 ? DType::f32 : type);  // a mean has no blocks
    EXPECT_EQ(tensor.bytes(), 6 * kColumns * dtype_bytes(tensor.dtype));
    EXPECT_EQ(files->tensors().at(0), &tensor);
    for (const std::int64_t begin : {0, 5, 3 * 32 + 7, 4 * 32, 4 * 32 + 9}) {  // pieces of any place
      const auto values = read(*files, begin, 6 * kColumns - 3);
      for (std::size_t k = 0; k < values.size(); ++k) {
        const std::int64_t i = begin + static_cast<std::int64_t>(k);
        const float mean = 1.5f + static_cast<float>(i % kColumns) / 32.0f;
        ASSERT_EQ(values[k], i < kRows * kColumns ? OneTable::value(i) : mean) << i;
      }
    }
  }
}

TEST(Vocabulary, ATableWithFewerRowsIsCut) {
  const auto files = resized_weights(std::make_unique<OneTable>("model.embed_tokens.weight", DType::f32), model_of(3));
  EXPECT_EQ(files->find("model.embed_tokens.weight")->shape[0], 3);
  EXPECT_EQ(read(*files, 2 * kColumns, 3 * kColumns)[1], OneTable::value(2 * kColumns + 1));
}

TEST(Vocabulary, OtherWeightsAndKeysOfTheConfigStay) {
  const ModelSource model = model_of(6);
  EXPECT_NE(model.config_text.find("\"unknown_key\": 7"), std::string::npos);
  const auto files = resized_weights(std::make_unique<OneTable>("model.norm.weight", DType::f32), model);
  EXPECT_EQ(files->find("model.norm.weight")->shape[0], kRows);
}

TEST(Vocabulary, AHeadOfItsOwnHasTheEmbeddingsValues) {
  const auto files =
      untied_weights(std::make_unique<OneTable>("model.embed_tokens.weight", DType::f32), model_of(4).config);
  EXPECT_EQ(files->tensors().size(), 2u);
  EXPECT_EQ(read(*files, 0, kRows * kColumns, "lm_head.weight"), read(*files, 0, kRows * kColumns));
  EXPECT_FALSE(untied(model_of(4)).config.tie_word_embeddings);
}

}  // namespace
}  // namespace heddle
