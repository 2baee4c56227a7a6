// Components of tokenizer.json; the expected ids are those of PyPI `tokenizers` 0.23.3 and, in folders, of
// AutoTokenizer of transformers 5.24.0 (4.57.1 gives the same).
#include <gmock/gmock.h>

#include "sentencepiece_file.h"

namespace heddle {
namespace {

using testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

/// Ids are the bytes of the words.
Json byte_document() {
  Json document;
  document["model"] = {{"type", "BPE"}, {"byte_fallback", true}, {"merges", Json::array()}};
  for (int i = 0; i < 256; ++i) document["model"]["vocab"][fmt::format("<0x{:02X}>", i)] = i;
  return document;
}

Json letter_document() {
  Json document;
  document["decoder"] = {{"type", "Fuse"}};
  document["model"] = {{"type", "BPE"}, {"merges", Json::array()}};
  for (int i = 0; i < 26; ++i) document["model"]["vocab"][std::string(1, static_cast<char>('a' + i))] = i;
  document["model"]["vocab"][" "] = 26;
  return document;
}

Json token(const char* content, Json flags = Json::object()) {
  Json all = {{"content", content}, {"single_word", false}, {"lstrip", false},
              {"rstrip", false},    {"normalized", false},  {"special", true}};
  all.update(flags);
  return all;
}

TEST(UnicodeScriptsSplit, WordsEndWhereTheScriptChanges) {
  Json document;
  document["pre_tokenizer"] = {{"type", "UnicodeScripts"}};
  document["model"] = {{"type", "WordLevel"}, {"unk_token", "?"}, {"vocab", {{"?", 0}, {"a", 1}}}};
  Json& vocab = document["model"]["vocab"];
  const char* words[] = {"どこで生れ", "。", "Yes", "β γ", "1", "б", "Apples are ", "りんご 林檎"};
  for (int i = 0; i < 8; ++i) vocab[words[i]] = 2 + i;
  const auto tokenizer = test::load_json(document);
  EXPECT_EQ(tokenizer->encode("どこで生れ。Yes", false), (Ids{2, 3, 4}));
  EXPECT_EQ(tokenizer->encode(" aβ γ1б", false), (Ids{1, 5, 6, 7}));  // a blank at the beginning vanishes
  EXPECT_EQ(tokenizer->encode("Apples are りんご 林檎", false), (Ids{8, 9}));
}

std::string base64(const std::string& bytes) {
  static constexpr char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  unsigned bits = 0;
  int count = 0;
  for (const char byte : bytes + std::string((3 - bytes.size() % 3) % 3, '\0')) {
    bits = bits << 8 | static_cast<unsigned char>(byte);
    for (count += 8; count >= 6; count -= 6) out += digits[bits >> (count - 6) & 63];
  }
  return out;
}

// What follows characters removed at the very beginning stands for the beginning.
TEST(PrecompiledNormalizer, RemovedCharactersLeaveThePlaceInTheInput) {
  Json document = byte_document();
  document["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", base64(test::charsmap(""))}};
  document["pre_tokenizer"] = {
      {"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "first"}, {"split", true}};
  const auto tokenizer = test::load_json(document);
  for (const char* text : {"ba", "ab", "bbab"}) EXPECT_EQ(tokenizer->encode(text, false), (Ids{95, 97})) << text;
  EXPECT_EQ(tokenizer->encode("b", false), Ids{});
}

TEST(PostProcessors, ASequenceAppliesThemInTurn) {
  Json document = byte_document();
  const Json bert = {{"type", "BertProcessing"}, {"sep", {"</s>", 2}}, {"cls", {"<s>", 1}}};
  Json around = {{"type", "TemplateProcessing"}, {"pair", Json::array()}};
  around["single"] = {{{"SpecialToken", {{"id", "t"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}};
  around["special_tokens"]["t"] = {{"id", "t"}, {"ids", {9}}, {"tokens", {"t"}}};
  document["post_processor"] = {{"type", "Sequence"}, {"processors", {bert, bert}}};
  EXPECT_EQ(test::load_json(document)->encode("ab", true), (Ids{1, 1, 97, 98, 2, 2}));
  document["post_processor"]["processors"] = {bert, around};
  EXPECT_EQ(test::load_json(document)->encode("ab", true), (Ids{9, 1, 97, 98, 2}));
  EXPECT_EQ(test::load_json(document)->encode("ab", false), (Ids{97, 98}));
  document["post_processor"]["processors"] = {around, bert};
  EXPECT_THAT(test::refusal_of(document.dump()), HasSubstr("post_processor.processors[1] adds special tokens after"));
}

TEST(OldFiles, AModelWithoutATypeIsKnownByItsMembers) {
  Json document = letter_document();
  document["model"].erase("type");
  EXPECT_EQ(test::load_json(document)->encode("ab", false), (Ids{0, 1}));
  document["model"] = Json::parse(R"({"vocab": [["?", 0], ["ab", -1]], "unk_id": 0})");
  EXPECT_EQ(test::load_json(document)->encode("ab", false), Ids{1});
  document["model"] = {{"vocab", {{"?", 0}, {"a", 1}, {"##b", 2}}}, {"unk_token", "?"}};
  document["model"]["continuing_subword_prefix"] = "##";
  EXPECT_EQ(test::load_json(document)->encode("ab", false), Ids{0});  // WordLevel
  document["model"]["max_input_chars_per_word"] = 9;
  EXPECT_EQ(test::load_json(document)->encode("ab", false), (Ids{1, 2}));
}

class AddedTokensOfFolder : public testing::Test {
 protected:
  /// tokenizer.json has <s> (27), <x> (28, not special) and <y> (29, lstrip).
  std::unique_ptr<Tokenizer> load(const std::string& config, const char* file = "tokenizer_config.json") {
    Json document = letter_document();
    document["added_tokens"] = {token("<s>"), token("<x>", {{"special", false}}), token("<y>", {{"lstrip", true}})};
    for (int i = 0; i < 3; ++i) document["added_tokens"][static_cast<std::size_t>(i)]["id"] = 27 + i;
    const test::TemporaryFolder folder;
    folder.write("tokenizer.json", document.dump());
    folder.write(file, config);
    return Tokenizer::load(folder.path());
  }
  std::unique_ptr<Tokenizer> load_decoder(const Json& decoder) {
    return load(Json{{"added_tokens_decoder", decoder}}.dump());
  }
  static Ids encode(const Tokenizer& tokenizer) { return tokenizer.encode("a <x> <y>b<z><q>", false); }
};

TEST_F(AddedTokensOfFolder, NewOnesHaveTheNextFreeIdWhateverIsSaid) {
  EXPECT_EQ(encode(*load("{}")), (Ids{0, 26, 28, 29, 1, 25, 16}));
  EXPECT_EQ(encode(*load_decoder({{"99", token("<z>")}})), (Ids{0, 26, 28, 29, 1, 30, 16}));
  EXPECT_EQ(encode(*load_decoder({{"31", token("<z>")}, {"30", token("<q>")}})), (Ids{0, 26, 28, 29, 1, 31, 30}));
  EXPECT_EQ(encode(*load_decoder({{"28", token("<q>")}})), (Ids{0, 26, 28, 29, 1, 25, 30}));
  EXPECT_EQ(load_decoder({{"99", token("<z>")}})->vocab_size(), 31);
}

TEST_F(AddedTokensOfFolder, KnownOnesTakeTheFlagsButStaySpecial) {
  EXPECT_EQ(encode(*load_decoder({{"28", token("<x>", {{"lstrip", true}})}})), (Ids{0, 28, 29, 1, 25, 16}));
  EXPECT_EQ(encode(*load_decoder({{"29", token("<y>")}})), (Ids{0, 26, 28, 26, 29, 1, 25, 16}));
  EXPECT_EQ(load("{}")->decode(Ids{27, 0, 28}, true), "a<x>");
  EXPECT_EQ(load_decoder({{"28", token("<x>")}})->decode(Ids{27, 0, 28}, true), "a");
  EXPECT_EQ(load_decoder({{"27", token("<s>", {{"special", false}})}})->decode(Ids{27, 0, 28}, true), "a<x>");
}

TEST_F(AddedTokensOfFolder, NamedTokensAreSpecialAndNewOnesComeLast) {
  EXPECT_EQ(load(R"({"pad_token": "<x>"})")->decode(Ids{0, 28}, true), "a");
  EXPECT_EQ(load(R"({"bos_token": "b"})")->decode(Ids{0, 1}, true), "a");
  EXPECT_EQ(encode(*load(R"({"eos_token": "<y>"})")), (Ids{0, 26, 28, 29, 1, 25, 16}));
  EXPECT_EQ(encode(*load(R"({"additional_special_tokens": ["<z>", "<q>"]})")), (Ids{0, 26, 28, 29, 1, 30, 31}));
  EXPECT_EQ(encode(*load(R"({"extra_special_tokens": ["<z>"]})")), (Ids{0, 26, 28, 29, 1, 30, 16}));
  EXPECT_EQ(load(R"({"additional_special_tokens": ["<x>"]})")->decode(Ids{0, 28}, true), "a<x>");
}

TEST_F(AddedTokensOfFolder, OlderFilesAreReadWhereThereIsNoDecoder) {
  EXPECT_EQ(encode(*load(R"({"<z>": 30})", "added_tokens.json")), (Ids{0, 26, 28, 29, 1, 30, 16}));
  EXPECT_EQ(encode(*load(R"({"pad_token": "<z>"})", "special_tokens_map.json")), (Ids{0, 26, 28, 29, 1, 30, 16}));
}

TEST_F(AddedTokensOfFolder, ChangeTheFingerprint) {
  EXPECT_NE(load("{}")->fingerprint(), load_decoder({{"30", token("<z>")}})->fingerprint());
}

}  // namespace
}  // namespace heddle
