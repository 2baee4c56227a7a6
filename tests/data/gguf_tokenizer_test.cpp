#include "data/tokenizer/gguf_tokenizer.h"

#include <gmock/gmock.h>

#include <sstream>

#include "data/tokenizer/gguf_chat_template.h"
#include "data/tokenizer/gguf_merges.h"
#include "formats/gguf.h"
#include "tokenizer_json.h"

namespace heddle {
namespace {

using test::data_folder;
using testing::ElementsAre;
using testing::HasSubstr;
using Ids = std::vector<std::int32_t>;
using Texts = std::vector<std::string>;
using Numbers = std::vector<std::int64_t>;

// llama.cpp's own vocabularies and cases.
class GgufLlamaCpp : public testing::TestWithParam<const char*> {};

TEST_P(GgufLlamaCpp, ItsCasesHaveItsIds) {
  const auto base = data_folder() / "tokenizers/llamacpp" / ("ggml-vocab-" + std::string(GetParam()) + ".gguf");
  if (!std::filesystem::exists(base.string() + ".inp")) GTEST_SKIP() << "no reference data at " << base;
  const auto tokenizer = Tokenizer::load(base);
  const std::string input = test::read_bytes(base.string() + ".inp"), separator = "\n__ggml_vocab_test__\n";
  std::istringstream output(test::read_bytes(base.string() + ".out"));
  std::size_t cases = 0;
  for (std::size_t begin = 0; begin <= input.size(); ++cases) {
    const std::size_t end = std::min(input.find(separator, begin), input.size());
    std::string line;
    std::getline(output, line);
    std::istringstream numbers(line);
    const Ids expected{std::istream_iterator<std::int32_t>(numbers), {}};
    const std::string text = input.substr(begin, end - begin);
    EXPECT_EQ(tokenizer->encode(text, false), expected) << Json(text).dump();
    begin = end + separator.size();
  }
  EXPECT_GE(cases, 46U);
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, GgufLlamaCpp,
                         testing::Values("command-r", "deepseek-coder", "deepseek-llm", "falcon", "gemma-4", "gpt-2",
                                         "llama-bpe", "llama-spm", "mpt", "phi-3", "qwen2", "qwen35", "refact",
                                         "starcoder"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

struct SameTokenizer {
  const char *vocabulary, *golden;
};
class GgufGolden : public testing::TestWithParam<SameTokenizer> {};

TEST_P(GgufGolden, StringsHaveTheIdsOfTheModelsOwnTokenizer) {
  const auto folder = data_folder() / "golden/families/tokenizer_strings";
  const auto file = data_folder() / "tokenizers/llamacpp" / (std::string(GetParam().vocabulary) + ".gguf");
  if (!std::filesystem::exists(folder) || !std::filesystem::exists(file)) GTEST_SKIP() << "no reference data";
  const Json texts = read_json_file(folder / "strings.json");
  const Json golden = read_json_file(folder / (std::string(GetParam().golden) + ".json"));
  const auto tokenizer = Tokenizer::load(file);
  ASSERT_EQ(texts.size(), golden["ids"].size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::string text = texts[i].get<std::string>();
    const Ids ids = golden["ids"][i].get<Ids>();
    EXPECT_EQ(tokenizer->encode(text, false), ids) << texts[i].dump();
    const auto changed = golden["decoded"].find(std::to_string(i));
    EXPECT_EQ(tokenizer->decode(ids, false), changed == golden["decoded"].end() ? text : changed->get<std::string>());
  }
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, GgufGolden,
                         testing::Values(SameTokenizer{"ggml-vocab-llama-spm", "llama2"},
                                         SameTokenizer{"ggml-vocab-llama-bpe", "llama3"},
                                         SameTokenizer{"ggml-vocab-gpt-2", "gpt2"}),
                         [](const auto& test) { return std::string(test.param.golden); });

/// A vocabulary of SentencePiece: 0 unknown, 1 and 2 ends, 3 user-defined, then pieces with falling scores, one byte.
GgufMetadata sentencepiece() {
  GgufMetadata metadata("model.gguf");
  metadata.add("tokenizer.ggml.model", std::string("llama"));
  metadata.add("tokenizer.ggml.tokens", Texts{"<unk>", "<s>", "</s>", "<x>", "\xE2\x96\x81", "a", "b", "ab",
                                              "\xE2\x96\x81"
                                              "ab",
                                              "<0x63>", "[PAD10]"});
  metadata.add("tokenizer.ggml.scores", std::vector<double>{0, 0, 0, 0, -4, -5, -6, -1, -2, 0, 0});
  metadata.add("tokenizer.ggml.token_type", Numbers{2, 3, 3, 4, 1, 1, 1, 1, 1, 6, 5});
  return metadata;
}

/// Byte-level BPE without merges but one.
GgufMetadata byte_level(const std::string& pre) {
  GgufMetadata metadata("model.gguf");
  metadata.add("tokenizer.ggml.model", std::string("gpt2"));
  metadata.add("tokenizer.ggml.pre", pre);
  metadata.add("tokenizer.ggml.tokens", Texts{"a", "b", "ab", "1", "11", "<|end|>", "[PAD6]"});
  metadata.add("tokenizer.ggml.token_type", Numbers{1, 1, 1, 1, 1, 3, 4});
  metadata.add("tokenizer.ggml.merges", Texts{"a b", "1 1"});
  metadata.add("tokenizer.ggml.bos_token_id", std::uint64_t{5});
  return metadata;
}

class GgufTokenizer : public testing::Test {
 protected:
  std::unique_ptr<Tokenizer> load(const GgufMetadata& metadata) const {
    GgufWriter(path_, metadata, {}).finish();
    return Tokenizer::load(path_);
  }
  static std::string error_of(const GgufMetadata& metadata) {
    try {
      gguf_tokenizer_document(metadata);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
  test::TemporaryFolder folder_;
  const std::filesystem::path path_ = folder_.path() / "model.gguf";
};

TEST_F(GgufTokenizer, SentencePieceMergesByScoreAfterABlank) {
  const auto tokenizer = load(sentencepiece());
  EXPECT_THAT(tokenizer->encode("ab", false), ElementsAre(8));
  EXPECT_THAT(tokenizer->encode("aab", false), ElementsAre(4, 5, 7));
  EXPECT_THAT(tokenizer->encode("ab", true), ElementsAre(1, 8));  // a text begins with BOS unless said otherwise
  EXPECT_THAT(tokenizer->encode("a<x>b", false), ElementsAre(4, 5, 3, 4, 6));  // a blank after a special token too
  EXPECT_EQ(tokenizer->decode(Ids{1, 8, 4, 7}, true), "ab ab");
  EXPECT_EQ(tokenizer->eos_id(), 2);
}

TEST_F(GgufTokenizer, CharactersWithoutAPieceBecomeTheirBytes) {
  EXPECT_THAT(load(sentencepiece())->encode("c", false), ElementsAre(4, 9));
}

TEST_F(GgufTokenizer, ABlankIsNotPutBeforeWhereTheFileSaysSo) {
  GgufMetadata metadata = sentencepiece();
  metadata.add("tokenizer.ggml.add_space_prefix", false);
  metadata.add("tokenizer.ggml.add_bos_token", false);
  metadata.add("tokenizer.ggml.add_eos_token", true);
  const auto tokenizer = load(metadata);
  EXPECT_THAT(tokenizer->encode("ab ab", true), ElementsAre(7, 8, 2));
  EXPECT_EQ(tokenizer->decode(Ids{8}, false), " ab");
}

TEST_F(GgufTokenizer, NamesOfPreTokenizersCutDigitsTheirWay) {
  EXPECT_THAT(load(byte_level("qwen2"))->encode("ab11", false), ElementsAre(2, 3, 3));
  EXPECT_THAT(load(byte_level("smollm"))->encode("ab11", false), ElementsAre(2, 3, 3));
  EXPECT_THAT(load(byte_level("llama-bpe"))->encode("ab11", false), ElementsAre(2, 4));
  EXPECT_THAT(load(byte_level("gpt-2"))->encode("ab11", false), ElementsAre(2, 4));
  EXPECT_THAT(load(byte_level("tekken"))->encode("ab11", false), ElementsAre(2, 3, 3));
}

TEST_F(GgufTokenizer, BosIsAddedWhereTheFamilyDoes) {
  EXPECT_THAT(load(byte_level("llama-bpe"))->encode("a", true), ElementsAre(5, 0));
  EXPECT_THAT(load(byte_level("qwen2"))->encode("a", true), ElementsAre(0));
}

TEST_F(GgufTokenizer, ControlTokensAreCutOutAndFillingIsNoToken) {
  const auto tokenizer = load(byte_level("gpt-2"));
  EXPECT_THAT(tokenizer->encode("a<|end|>b", false), ElementsAre(0, 5, 1));
  EXPECT_EQ(tokenizer->decode(Ids{0, 5, 1}, true), "ab");
  EXPECT_FALSE(tokenizer->token_to_id("[PAD6]"));
}

TEST_F(GgufTokenizer, AnIdOfMinusOneIsNone) {
  GgufMetadata metadata = byte_level("gpt-2");
  metadata.add("tokenizer.ggml.eos_token_id", std::uint64_t{0xFFFFFFFF});
  EXPECT_FALSE(load(metadata)->eos_id());
}

TEST_F(GgufTokenizer, FilesForOtherToolsNameTheSpecialTokens) {
  GgufMetadata metadata = sentencepiece();
  metadata.add("tokenizer.chat_template", std::string("{{ bos_token }}"));
  const auto files = gguf_tokenizer_files(metadata);
  ASSERT_EQ(files.size(), 2U);
  EXPECT_EQ(parse_json(files[0].text, files[0].name), gguf_tokenizer_document(metadata));
  const Json config = parse_json(files[1].text, files[1].name);
  EXPECT_EQ(config["bos_token"], "<s>");
  EXPECT_EQ(config["eos_token"], "</s>");
  EXPECT_EQ(config["unk_token"], "<unk>");
  EXPECT_EQ(config["chat_template"], "{{ bos_token }}");
  EXPECT_TRUE(gguf_tokenizer_files(GgufMetadata("model.gguf")).empty());
}

TEST_F(GgufTokenizer, TemplatesSeeTheSpecialTokens) {
  GgufMetadata metadata = sentencepiece();
  metadata.add("tokenizer.chat_template", std::string("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}"));
  GgufWriter(path_, metadata, {}).finish();
  const auto chat_template = load_gguf_chat_template(path_);
  ASSERT_TRUE(chat_template);
  const Json messages = Json::array({Json{{"role", "user"}, {"content", "hi"}}});
  EXPECT_EQ(chat_template->render(messages, nullptr, nullptr, false).text, "<s>hi</s>");
}

TEST_F(GgufTokenizer, SeveralTemplatesKeepTheirNames) {
  GgufMetadata metadata = sentencepiece();
  metadata.add("tokenizer.chat_template", std::string("plain"));
  metadata.add("tokenizer.chat_templates", Texts{"tool_use"});
  metadata.add("tokenizer.chat_template.tool_use", std::string("with tools"));
  const Json templates = gguf_tokenizer_config(metadata)["chat_template"];
  ASSERT_EQ(templates.size(), 2U);
  EXPECT_EQ(templates[1], (Json{{"name", "tool_use"}, {"template", "with tools"}}));
}

TEST_F(GgufTokenizer, RefusesByKeyWhatItDoesNotKnow) {
  EXPECT_THAT(error_of(byte_level("kimi-k2")), HasSubstr("tokenizer.ggml.pre is"));
  GgufMetadata other("model.gguf");
  other.add("tokenizer.ggml.model", std::string("bert"));
  other.add("tokenizer.ggml.tokens", Texts{"a"});
  EXPECT_THAT(error_of(other), HasSubstr("tokenizer.ggml.model is \"bert\"; expected gpt2, llama or gemma4"));
  GgufMetadata unscored("model.gguf");
  unscored.add("tokenizer.ggml.model", std::string("llama"));
  unscored.add("tokenizer.ggml.tokens", Texts{"<unk>", "<s>"});
  EXPECT_THAT(error_of(unscored), HasSubstr("tokenizer.ggml.scores"));
  GgufMetadata broken("model.gguf");
  broken.add("tokenizer.ggml.model", std::string("gpt2"));
  broken.add("tokenizer.ggml.tokens", Texts{"a", "\xFF"});
  EXPECT_THAT(error_of(broken), HasSubstr("expected UTF-8"));
  GgufMetadata doubled("model.gguf");
  doubled.add("tokenizer.ggml.model", std::string("gpt2"));
  doubled.add("tokenizer.ggml.tokens", Texts{"a", "b", "a"});
  EXPECT_THAT(error_of(doubled), HasSubstr("tokenizer.ggml.tokens[2] is a, which another id has too"));
  GgufMetadata short_list("model.gguf");
  short_list.add("tokenizer.ggml.model", std::string("gpt2"));
  short_list.add("tokenizer.ggml.tokens", Texts{"a", "b"});
  short_list.add("tokenizer.ggml.token_type", Numbers{1});
  EXPECT_THAT(error_of(short_list), HasSubstr("tokenizer.ggml.token_type"));
}

TEST(MergesByScore, BestScoreComesFirstThenTheLongerLeftPart) {
  const std::vector<ScoredToken> tokens = {{"a", -9}, {"b", -9}, {"ab", -2}, {"ba", -1}, {"aba", -1}};
  EXPECT_EQ(merges_by_score(tokens), Json::array({"ab a", "a ba", "b a", "a b"}));
}

}  // namespace
}  // namespace heddle
