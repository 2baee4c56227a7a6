#include "data/tokenizer.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/random.h"
#include "tokenizer_json.h"

namespace heddle {
namespace {

using Ids = std::vector<std::int32_t>;

Json added(int id, const char* content, Json flags = Json::object()) {
  Json token = {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", false}};
  token.update(flags);
  return token;
}

/// One id for each ASCII letter, the blank and the dot; ids 100 and on are added tokens.
Json letter_document() {
  Json document;
  document["decoder"] = {{"type", "Fuse"}};
  document["model"] = {{"type", "BPE"}, {"merges", Json::array()}};
  for (int i = 0; i < 26; ++i) document["model"]["vocab"][std::string(1, static_cast<char>('a' + i))] = i;
  document["model"]["vocab"][" "] = 26;
  document["model"]["vocab"]["."] = 27;
  return document;
}

TEST(ByteTokenizer, IdsAreTheBytes) {
  const auto tokenizer = Tokenizer::bytes();
  EXPECT_EQ(tokenizer->encode("a\xC3\xA9", true), (Ids{97, 195, 169}));
  EXPECT_EQ(tokenizer->decode(Ids{97, 195, 169, 256}, true), "a\xC3\xA9");
  EXPECT_EQ(tokenizer->decode(Ids{195, 97}, true),
            "\xEF\xBF\xBD"
            "a");
  EXPECT_EQ(tokenizer->eos_id(), 256);
  EXPECT_EQ(tokenizer->vocab_size(), 257);
}

TEST(AddedTokens, TheLongestAtTheLeftmostPlaceIsTaken) {
  Json document = letter_document();
  document["added_tokens"] = Json::array({added(28, "ab"), added(29, "abc"), added(30, "bcd")});
  EXPECT_EQ(test::load_json(document)->encode("xabcdab", false), (Ids{23, 29, 3, 28}));
}

TEST(AddedTokens, FlagsDecideWhatIsTaken) {
  Json document = letter_document();
  document["added_tokens"] = Json::array({added(28, "ab", {{"single_word", true}})});
  EXPECT_EQ(test::load_json(document)->encode("ab abc.ab", false), (Ids{28, 26, 0, 1, 2, 27, 28}));
  document["added_tokens"] = Json::array({added(28, "ab", {{"lstrip", true}})});
  EXPECT_EQ(test::load_json(document)->encode("x  ab c", false), (Ids{23, 28, 26, 2}));
  document["added_tokens"] = Json::array({added(28, "ab", {{"rstrip", true}})});
  EXPECT_EQ(test::load_json(document)->encode("x ab  c", false), (Ids{23, 26, 28, 2}));
}

TEST(AddedTokens, NormalizedOnesAreLookedForInNormalizedText) {
  Json document = letter_document();
  document["normalizer"] = {{"type", "Lowercase"}};
  document["added_tokens"] = Json::array({added(28, "AB", {{"normalized", true}}), added(29, "CD")});
  const auto tokenizer = test::load_json(document);
  EXPECT_EQ(tokenizer->encode("Abcdab", false), (Ids{28, 2, 3, 28}));
  EXPECT_EQ(tokenizer->encode("CD", false), (Ids{29}));
}

TEST(AddedTokens, SpecialOnesAreLeftOutWhenAsked) {
  Json document = letter_document();
  document["added_tokens"] = Json::array({added(28, "<s>", {{"special", true}}), added(29, "<t>")});
  const auto tokenizer = test::load_json(document);
  const Ids ids = tokenizer->encode("<s>a<t>", false);
  EXPECT_EQ(tokenizer->decode(ids, true), "a<t>");
  EXPECT_EQ(tokenizer->decode(ids, false), "<s>a<t>");
  EXPECT_EQ(tokenizer->decode(Ids{0, 500, -1}, false), "a");
  EXPECT_EQ(tokenizer->vocab_size(), 30);
  EXPECT_EQ(tokenizer->token_to_id("<t>"), 29);
  EXPECT_EQ(tokenizer->id_to_token(28), "<s>");
}

TEST(PostProcessor, TheTemplateAddsItsTokensWhenAsked) {
  Json document = letter_document();
  document["added_tokens"] = Json::array({added(28, "<s>"), added(29, "</s>")});
  document["post_processor"] = {{"type", "TemplateProcessing"}, {"pair", Json::array()}};
  document["post_processor"]["single"] = {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
                                          {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
                                          {{"SpecialToken", {{"id", "</s>"}, {"type_id", 0}}}}};
  document["post_processor"]["special_tokens"] = {{"<s>", {{"id", "<s>"}, {"ids", {28}}, {"tokens", {"<s>"}}}},
                                                  {"</s>", {{"id", "</s>"}, {"ids", {29}}, {"tokens", {"</s>"}}}}};
  const auto tokenizer = test::load_json(document);
  EXPECT_EQ(tokenizer->encode("a", true), (Ids{28, 0, 29}));
  EXPECT_EQ(tokenizer->encode("a", false), (Ids{0}));
  EXPECT_EQ(tokenizer->encode("", true), (Ids{28, 29}));
}

TEST(ModelFolder, TheFirstFileThatNamesASpecialTokenDecides) {
  const test::TemporaryFolder folder;
  Json document = letter_document();
  document["added_tokens"] = Json::array({added(28, "<s>"), added(29, "</s>")});
  folder.write("tokenizer.json", document.dump());
  folder.write("config.json", R"({"bos_token_id": 4, "eos_token_id": [7, 8]})");
  auto tokenizer = Tokenizer::load(folder.path());
  EXPECT_EQ(tokenizer->bos_id(), 4);
  EXPECT_EQ(tokenizer->eos_id(), 7);
  EXPECT_EQ(tokenizer->add_bos_token(), std::nullopt);
  const std::string before = tokenizer->fingerprint();

  folder.write("generation_config.json", R"({"eos_token_id": 9})");
  EXPECT_EQ(Tokenizer::load(folder.path())->eos_id(), 9);
  folder.write("special_tokens_map.json", R"({"eos_token": "</s>", "bos_token": "a"})");
  EXPECT_EQ(Tokenizer::load(folder.path())->eos_id(), 29);
  folder.write("tokenizer_config.json",
               R"({"bos_token": {"content": "<s>"}, "eos_token": null, "add_bos_token": true})");
  tokenizer = Tokenizer::load(folder.path());
  EXPECT_EQ(tokenizer->bos_id(), 28);
  EXPECT_EQ(tokenizer->eos_id(), 29);
  EXPECT_EQ(tokenizer->add_bos_token(), true);
  EXPECT_NE(tokenizer->fingerprint(), before);
}

/// Byte-level, with merges, so that words differ in more than their letters.
Json merging_document() {
  Json document = letter_document();
  document["model"]["vocab"]["\xC4\xA0"] = 28;
  document["model"]["vocab"]["aa"] = 29;
  document["model"]["vocab"]["aaaa"] = 30;
  document["model"]["merges"] = {"a a", "aa aa"};
  document["pre_tokenizer"] = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  return document;
}

TEST(Encoding, AMillionEqualLettersTakeNoQuadraticTime) {
  const auto tokenizer = test::load_json(merging_document());
  // Quadratic would be hours, which no run of the tests waits for.
  EXPECT_EQ(tokenizer->encode(std::string(1000000, 'a'), false), Ids(250000, 30));
}

TEST(Encoding, MoreWordsThanTheCacheHoldsChangeNothing) {
  const auto tokenizer = test::load_json(merging_document());
  std::string text;
  Ids want;
  Random random(3, 0);
  for (int i = 0; i < 120000; ++i) {
    text += ' ';
    want.push_back(28);
    for (int k = 0; k < 5; ++k) {  // no a: no merge
      const auto letter = static_cast<std::int32_t>(1 + random.below(25));
      text += static_cast<char>('a' + letter);
      want.push_back(letter);
    }
  }
  EXPECT_EQ(tokenizer->encode(text, false), want);
  EXPECT_EQ(tokenizer->encode(text, false), want);
}

TEST(Encoding, ThreadsMayShareATokenizer) {
  const auto tokenizer = test::load_json(merging_document());
  std::string text;
  for (int i = 0; i < 2000; ++i) text += i % 3 == 0 ? " aaaaa" : " xy";
  const Ids want = tokenizer->encode(text, false);
  std::vector<Ids> got(4);
  std::vector<std::thread> threads;
  for (Ids& ids : got)
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) ids = tokenizer->encode(text, false);
    });
  for (std::thread& thread : threads) thread.join();
  for (const Ids& ids : got) EXPECT_EQ(ids, want);
}

}  // namespace
}  // namespace heddle
