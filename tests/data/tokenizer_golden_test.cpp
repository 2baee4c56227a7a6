// Ids of Hugging Face's `tokenizers`, of llama.cpp, and of a PyTorch run of stories260K.
#include <gtest/gtest.h>

#include <sstream>

#include "tokenizer_json.h"

namespace heddle {
namespace {

using test::data_folder;
using Ids = std::vector<std::int32_t>;

class Golden : public testing::TestWithParam<const char*> {};

TEST_P(Golden, StringsHaveTheReferencesIdsAndComeBackAsItsText) {
  const auto folder = data_folder() / "golden/families/tokenizer_strings";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no reference data at " << folder;
  const Json texts = read_json_file(folder / "strings.json");
  const Json golden = read_json_file(folder / (std::string(GetParam()) + ".json"));
  const auto tokenizer = Tokenizer::load(data_folder() / golden["tokenizer"].get<std::string>());
  ASSERT_EQ(texts.size(), golden["ids"].size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::string text = texts[i].get<std::string>();
    const Ids ids = golden["ids"][i].get<Ids>();
    EXPECT_EQ(tokenizer->encode(text, false), ids) << texts[i].dump();
    if (i < golden["with_special_tokens"].size()) {
      EXPECT_EQ(tokenizer->encode(text, true), golden["with_special_tokens"][i].get<Ids>()) << texts[i].dump();
    }
    const auto changed = golden["decoded"].find(std::to_string(i));
    EXPECT_EQ(tokenizer->decode(ids, false), changed == golden["decoded"].end() ? text : changed->get<std::string>());
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, Golden,
                         testing::Values("gpt2", "llama3", "llama3_1", "qwen3", "llama2", "mistral_v1", "gemma_like"),
                         [](const auto& test) { return std::string(test.param); });

struct LlamaCppCase {
  const char *family, *tokenizer;
};
class LlamaCpp : public testing::TestWithParam<LlamaCppCase> {};

TEST_P(LlamaCpp, ItsCasesHaveItsIds) {
  const auto base = data_folder() / "tokenizers/llamacpp" / (std::string("ggml-vocab-") + GetParam().family + ".gguf");
  if (!std::filesystem::exists(base.string() + ".inp")) GTEST_SKIP() << "no reference data at " << base;
  const auto tokenizer =
      Tokenizer::load(data_folder() / "tokenizers/hf_json" / (std::string(GetParam().tokenizer) + ".tokenizer.json"));
  const std::string input = test::read_bytes(base.string() + ".inp"), separator = "\n__ggml_vocab_test__\n";
  std::istringstream output(test::read_bytes(base.string() + ".out"));
  int cases = 0;
  for (std::size_t begin = 0, end; (end = input.find(separator, begin)) != std::string::npos;
       begin = end + separator.size()) {
    std::string line;
    std::getline(output, line);
    std::istringstream numbers(line);
    const Ids want{std::istream_iterator<std::int32_t>(numbers), {}};
    EXPECT_EQ(tokenizer->encode(input.substr(begin, end - begin), false), want) << input.substr(begin, end - begin);
    ++cases;
  }
  EXPECT_GT(cases, 40);
}

INSTANTIATE_TEST_SUITE_P(Families, LlamaCpp,
                         testing::Values(LlamaCppCase{"gpt-2", "gpt2"}, LlamaCppCase{"llama-bpe", "llama3"},
                                         LlamaCppCase{"qwen2", "qwen3"}, LlamaCppCase{"llama-spm", "llama2"}),
                         [](const auto& test) { return std::string(test.param.tokenizer); });

TEST(Stories260K, TheSampleHasTheIdsOfTheTorchRun) {
  const auto path = data_folder() / "golden/stories260K_torch_reference.json";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no reference data at " << path;
  const Json reference = read_json_file(path);
  const auto tokenizer = Tokenizer::load(data_folder() / "models/stories260K/hf");
  const std::string text = test::read_bytes(data_folder() / reference["text"].get<std::string>());
  const Ids ids = tokenizer->encode(text, true);
  EXPECT_EQ(ids, reference["token_ids_with_bos"].get<Ids>());
  EXPECT_EQ(tokenizer->decode(ids, true), text);
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_EQ(tokenizer->eos_id(), 2);
}

TEST(Gpt2Files, VocabAndMergesGiveTheIdsOfTokenizerJson) {
  const auto folder = data_folder() / "tokenizers";
  if (!std::filesystem::exists(folder / "gpt2/merges.txt")) GTEST_SKIP() << "no reference data at " << folder;
  const auto from_files = Tokenizer::load(folder / "gpt2");
  const auto from_json = Tokenizer::load(folder / "hf_json/gpt2.tokenizer.json");
  const std::string text = "It's a test:  na\xC3\xAFve \xF0\x9F\x91\x8D<|endoftext|>\n\n 1234";
  EXPECT_EQ(from_files->encode(text, false), from_json->encode(text, false));
  EXPECT_EQ(from_files->vocab_size(), 50257);
}

}  // namespace
}  // namespace heddle
