// Ids and texts are those of PyPI `sentencepiece` 0.2.3; in folders, of LlamaTokenizer (slow) of transformers 4.57.1.
#include <gmock/gmock.h>

#include "sentencepiece_file.h"

namespace heddle {
namespace {

using test::data_folder;
using test::load_model;
using testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

const std::string abba = "abba b  \xC3\xA9", bel = "b\xC3\xA9l a";

std::string with_bytes(test::Algorithm algorithm, const std::string& normalizer) {
  return test::letter_pieces() + test::byte_pieces() + test::trainer(algorithm, test::byte_fallback()) + normalizer;
}

class Segmentation : public testing::TestWithParam<test::Algorithm> {
 protected:
  std::string with(const std::string& normalizer, const std::string& more = "") const {
    return test::letter_pieces() + test::trainer(GetParam(), more) + normalizer;
  }
};

TEST_P(Segmentation, UnknownTextIsOnePieceOrItsBytes) {
  EXPECT_EQ(load_model(with(test::normalizer(false, false, true)))->encode(abba, false), (Ids{9, 4, 3, 5, 3, 3, 0}));
  EXPECT_EQ(load_model(with_bytes(GetParam(), test::normalizer(false, false, true)))->encode(abba, false),
            (Ids{9, 4, 3, 5, 3, 3, 206, 180}));
}

TEST_P(Segmentation, UserDefinedPiecesAreTakenWhole) {
  EXPECT_EQ(load_model(with(test::normalizer(false, false, true)))->encode(bel, false), (Ids{5, 10, 6}));
}

TEST_P(Segmentation, SpacesAreMadeSingleAndVisibleWithOneBefore) {
  const auto tokenizer = load_model(with(test::normalizer(true, true, true)));
  EXPECT_EQ(tokenizer->encode(abba, false), (Ids{3, 9, 4, 3, 5, 3, 0}));
  EXPECT_EQ(tokenizer->encode(" ", false), Ids{});
  EXPECT_EQ(load_model(with(test::normalizer(false, false, true)))->encode(" ", false), Ids{3});
  EXPECT_EQ(load_model(with(test::normalizer(true, true, false)))->encode(abba, false), (Ids{0, 9, 4, 0, 5, 0}));
}

TEST_P(Segmentation, RulesOfTheCharsmapAndABlankAfterTheText) {
  const std::string after = test::wire_number(24, 1);
  const auto plain = load_model(with(test::normalizer(false, false, true, test::charsmap("a ")), after));
  EXPECT_EQ(plain->encode(abba, false), (Ids{4, 4, 6, 6, 6, 3, 3, 3, 0}));
  const auto single = load_model(with(test::normalizer(true, true, true, test::charsmap("a ")), after));
  EXPECT_EQ(single->encode(abba, false), (Ids{4, 4, 6, 6, 6, 3, 0, 3}));
  EXPECT_EQ(single->encode(bel, false), (Ids{4, 3, 10, 6, 3}));
}

TEST_P(Segmentation, DecodingDropsTheBlankThatEncodingPutBefore) {
  const auto kept = load_model(with(test::normalizer(false, false, true)));
  EXPECT_EQ(kept->decode(Ids{3, 4, 3, 5}, true), " a b");
  EXPECT_EQ(kept->decode(Ids{6, 0, 10}, true), " a \xE2\x81\x87 \xC3\xA9l");
  const auto dropped = load_model(with(test::normalizer(true, true, true)));
  EXPECT_EQ(dropped->decode(Ids{3, 4, 3, 5}, true), "a b");
  EXPECT_EQ(dropped->decode(Ids{1, 6, 2, 6}, true), "a a");
  EXPECT_EQ(dropped->decode(Ids{3, 3, 6}, true), "a");
  EXPECT_EQ(dropped->decode(Ids{1, 6, 2}, false), "<s> a</s>");
}

INSTANTIATE_TEST_SUITE_P(Algorithms, Segmentation, testing::Values(test::unigram, test::bpe),
                         [](const auto& test) { return test.param == test::unigram ? "unigram" : "bpe"; });

TEST(SentencePieceDecoding, BytesThatAreNoTextBecomeReplacementCharactersOneByOne) {
  const auto tokenizer = load_model(with_bytes(test::bpe, test::normalizer(false, false, true)));
  const auto bytes = [&](std::initializer_list<int> values) {
    Ids ids;
    for (const int value : values) ids.push_back(11 + value);
    return tokenizer->decode(ids, true);
  };
  EXPECT_EQ(bytes({0xC3, 0xA9}), "\xC3\xA9");
  EXPECT_EQ(bytes({0xE4, 0xBD, 0xF0, 0x9F, 0x98, 0x80, 0xFF}), "\xEF\xBF\xBD\xEF\xBF\xBD\xF0\x9F\x98\x80\xEF\xBF\xBD");
  EXPECT_EQ(tokenizer->decode(Ids{11 + 0xC3, 4}, true),
            "\xEF\xBF\xBD"
            "a");
  EXPECT_EQ(tokenizer->decode(Ids{6, 11 + 0x41, 6, 5000, -1}, true), " aA a");
}

TEST(SentencePieceFile, TheBeginTokenIsAddedUnlessTheFolderSaysOtherwise) {
  const std::string model = with_bytes(test::bpe, test::normalizer(true, false, true));
  const auto bare = load_model(model);
  EXPECT_EQ(bare->encode("a", true), (Ids{1, 6}));
  EXPECT_EQ(bare->bos_id(), 1);
  EXPECT_EQ(bare->eos_id(), 2);
  const auto folder = test::load_model_folder(model, R"({"add_bos_token": false, "add_eos_token": true})");
  EXPECT_EQ(folder->encode("a", true), (Ids{6, 2}));
}

TEST(SentencePieceFolder, SpecialTokensAreCutOutOfTheTextAsInABareFileTheyAreNot) {
  const std::string model = with_bytes(test::bpe, test::normalizer(true, true, true));
  EXPECT_EQ(load_model(model)->encode("<s>", false), (Ids{3, 71, 126, 73}));
  const auto legacy = test::load_model_folder(model, "{}");
  EXPECT_EQ(legacy->encode("<s>", false), Ids{1});
}

// The tokenizer of transformers for the model of the fuzzer's seed 11: BPE, bytes, add_dummy_prefix off.
TEST(SentencePieceFolder, AddedTokensTakeBlanksAndWordsAsTheirFlagsSay) {
  const std::string model = with_bytes(test::bpe, test::normalizer(false, false, true));
  const auto load = [&](const std::string& legacy, const std::string& more) {
    return test::load_model_folder(model, R"({"tokenizer_class": "LlamaTokenizer", "legacy": )" + legacy + more + "}");
  };
  const std::string stripping =
      R"(, "added_tokens_decoder": {"400": {"content": "<m>", "lstrip": true, "rstrip": true, "special": true},)"
      R"( "401": {"content": "abb", "special": false}})";
  const std::string alone =
      R"(, "added_tokens_decoder": {"400": {"content": "<m>", "single_word": true, "special": true}})";
  const std::string named = R"(, "pad_token": "<m>")";
  auto legacy = load("true", stripping);
  EXPECT_EQ(legacy->encode("ab<s>ab", true), (Ids{1, 4, 5, 1, 4, 5}));
  EXPECT_EQ(legacy->encode("a <m> b", true), (Ids{1, 4, 400, 5}));
  EXPECT_EQ(legacy->encode("xabb", true), (Ids{1, 131, 401}));
  EXPECT_EQ(legacy->vocab_size(), 402);
  EXPECT_EQ(load("true", alone)->encode("a <m> b", true), (Ids{1, 4, 3, 400, 3, 5}));
  EXPECT_EQ(load("true", alone)->encode("a<m>b", true), (Ids{1, 4, 71, 120, 73, 5}));
  EXPECT_EQ(load("true", named)->encode("a<m>b", true), (Ids{1, 4, 267, 5}));
  EXPECT_EQ(load("false", stripping)->encode("xabb", true), (Ids{1, 3, 131, 401}));
  EXPECT_EQ(load("false", stripping)->encode("a <m> b", true), (Ids{1, 6, 400, 5}));
  EXPECT_EQ(load("false", alone)->encode("<s> a", true), (Ids{1, 1, 6}));
  EXPECT_NE(load("false", alone)->fingerprint(), load("true", alone)->fingerprint());
}

std::string refusal(const std::string& bytes) {
  try {
    load_model(bytes);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(SentencePieceErrors, NameWhatIsWrong) {
  using test::piece;
  const std::string sound = test::letter_pieces() + test::trainer(test::bpe);
  EXPECT_EQ(refusal(sound), "");
  EXPECT_THAT(refusal("AA== 0\nAQ== 1\n"), HasSubstr("tokenizer.model: it is a tiktoken file"));
  EXPECT_THAT(refusal(""), HasSubstr("it has no pieces"));
  EXPECT_THAT(refusal(test::letter_pieces() + test::trainer(test::word)),
              HasSubstr("trainer_spec.model_type is 3 (word); expected 1 (unigram) or 2 (bpe)"));
  EXPECT_THAT(refusal(sound.substr(0, 20)), HasSubstr("expected a protobuf message"));
  EXPECT_THAT(refusal(sound + "\x0B"), HasSubstr("a field has wire type 3"));
  EXPECT_THAT(refusal(sound + std::string(11, '\xFF')), HasSubstr("a varint is longer than 64 bits"));
  EXPECT_THAT(refusal(sound + test::wire_number(1, 5)), HasSubstr("pieces has wire type 0; expected 2"));
  EXPECT_THAT(refusal(piece("a", 0, test::normal)), HasSubstr("it has no piece of type unknown"));
  EXPECT_THAT(refusal(sound + piece("?", 0, test::unknown)), HasSubstr("pieces[11] \"?\" is unknown, as pieces[0] is"));
  EXPECT_THAT(refusal(sound + piece("bb", 0, test::normal)), HasSubstr("pieces[11] \"bb\" is pieces[8] too"));
  EXPECT_THAT(refusal(sound + piece("", 0, test::normal)), HasSubstr("pieces[11].piece is empty"));
  EXPECT_THAT(refusal(sound + piece("\xFF", 0, test::normal)), HasSubstr("pieces[11].piece is not UTF-8"));
  EXPECT_THAT(refusal(sound + piece("x", std::numeric_limits<float>::infinity(), test::normal)),
              HasSubstr("pieces[11].score is inf"));
  EXPECT_THAT(refusal(sound + piece("<0x41>", 0, test::byte)), HasSubstr("byte_fallback is false"));
  EXPECT_THAT(refusal(test::letter_pieces() + test::trainer(test::bpe, test::byte_fallback())),
              HasSubstr("the byte <0x00> is missing"));
  EXPECT_THAT(refusal(sound + test::normalizer(true, true, true, "abcdefgh")),
              HasSubstr("normalizer_spec.precompiled_charsmap: its 8 bytes hold no trie"));
}

TEST(SentencePieceErrors, NameAClassThatNumbersThePiecesAnew) {
  try {
    test::load_model_folder(test::letter_pieces(), R"({"tokenizer_class": "XLMRobertaTokenizer"})");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("tokenizer_class is \"XLMRobertaTokenizer\"; expected GemmaTokenizer"));
  }
}

// Llama 2: what its tokenizer.json gives, special tokens in the text included.
TEST(SentencePieceGolden, Llama2HasTheIdsAndTextsOfItsTokenizerJson) {
  const auto strings = data_folder() / "golden/families/tokenizer_strings";
  const auto model = data_folder() / "tokenizers/llama2_tokenizer.model";
  if (!std::filesystem::exists(strings) || !std::filesystem::exists(model)) {
    GTEST_SKIP() << "no reference data at " << data_folder();
  }
  const Json texts = read_json_file(strings / "strings.json"), golden = read_json_file(strings / "llama2.json");
  const auto tokenizer = test::load_model_folder(test::read_bytes(model), "{}");
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::string text = texts[i].get<std::string>();
    const Ids ids = golden["ids"][i].get<Ids>();
    EXPECT_EQ(tokenizer->encode(text, false), ids) << texts[i].dump();
    const auto changed = golden["decoded"].find(std::to_string(i));
    EXPECT_EQ(tokenizer->decode(ids, false), changed == golden["decoded"].end() ? text : changed->get<std::string>());
  }
}

}  // namespace
}  // namespace heddle
