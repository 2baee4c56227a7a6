// A bad tokenizer.json is refused by a line that names the file, the key and the value.
#include <gmock/gmock.h>

#include "tokenizer_json.h"

namespace heddle {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Json sound_document() {
  Json document = {{"version", "1.0"}, {"added_tokens", Json::array()}, {"normalizer", nullptr}};
  document["pre_tokenizer"] = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  document["model"] = {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}}}, {"merges", {"a b"}}};
  return document;
}

template <typename Spoil>
std::string refusal(Spoil spoil) {
  Json document = sound_document();
  spoil(document);
  return test::refusal_of(document.dump());
}

Json added(int id, const char* content) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

TEST(TokenizerErrors, TheSoundDocumentLoads) { EXPECT_EQ(test::refusal_of(sound_document().dump()), ""); }

TEST(TokenizerErrors, NameTheFile) {
  EXPECT_THAT(test::refusal_of("{\"model\": "), HasSubstr("tokenizer.json"));
  EXPECT_THAT(test::refusal_of("[]"), HasSubstr("tokenizer.json: the document is []; expected an object"));
  EXPECT_THROW(Tokenizer::load("/nonexistent/tokenizer.json"), Error);
}

TEST(TokenizerErrors, NameAnUnknownType) {
  EXPECT_THAT(refusal([](Json& d) { d["model"]["type"] = "Bpee"; }),
              HasSubstr("tokenizer.json: model.type is \"Bpee\"; expected BPE, Unigram, WordPiece or WordLevel"));
  EXPECT_THAT(refusal([](Json& d) { d["normalizer"] = {{"type", "NFX"}}; }), HasSubstr("normalizer.type is \"NFX\""));
  EXPECT_THAT(refusal([](Json& d) {
                d["pre_tokenizer"] = {{"type", "Wordwise"}};
              }),
              HasSubstr("pre_tokenizer.type is \"Wordwise\""));
  EXPECT_THAT(refusal([](Json& d) { d["decoder"] = {{"type", "Unfold"}}; }), HasSubstr("decoder.type is \"Unfold\""));
  EXPECT_THAT(refusal([](Json& d) {
                d["post_processor"] = {{"type", "Byte"}};
              }),
              HasSubstr("post_processor.type is \"Byte\""));
  EXPECT_THAT(refusal([](Json& d) {
                d["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "Lower"}}}}};
              }),
              HasSubstr("normalizer.normalizers[1].type is \"Lower\""));
  EXPECT_THAT(refusal([](Json& d) { d["version"] = "2.0"; }), HasSubstr("version is \"2.0\"; expected 1.0"));
}

TEST(TokenizerErrors, NameAMissingKey) {
  EXPECT_THAT(refusal([](Json& d) { d.erase("model"); }), HasSubstr("tokenizer.json: model is missing"));
  EXPECT_THAT(refusal([](Json& d) { d["model"].erase("merges"); }), HasSubstr("model: merges is missing"));
  EXPECT_THAT(refusal([](Json& d) { d["pre_tokenizer"].erase("type"); }), HasSubstr("pre_tokenizer: type is missing"));
}

TEST(TokenizerErrors, NameAWrongVocabularyEntry) {
  EXPECT_THAT(refusal([](Json& d) { d["model"]["vocab"] = {"a"}; }),
              HasSubstr("model.vocab is [\"a\"]; expected an object"));
  EXPECT_THAT(refusal([](Json& d) { d["model"]["vocab"]["b"] = 0; }),
              AllOf(HasSubstr("\"b\""), HasSubstr("\"a\""), HasSubstr("0")));
  EXPECT_THAT(refusal([](Json& d) { d["model"]["vocab"]["b"] = -1; }), HasSubstr("model.vocab.[\"b\"] is -1"));
  EXPECT_THAT(refusal([](Json& d) { d["model"]["vocab"]["b"] = 1.5; }), HasSubstr("model.vocab.[\"b\"] is 1.5"));
  EXPECT_THAT(refusal([](Json& d) { d["model"]["vocab"]["b"] = 1LL << 40; }), HasSubstr("1099511627776"));
}

TEST(TokenizerErrors, NameAWrongMerge) {
  EXPECT_THAT(refusal([](Json& d) { d["model"]["merges"] = "a b"; }),
              HasSubstr("model.merges is \"a b\"; expected a list"));
  EXPECT_THAT(refusal([](Json& d) {
                d["model"]["merges"] = {"a b", "q zz"};
              }),
              AllOf(HasSubstr("model.merges[1] "), HasSubstr("\"zz\"")));
  EXPECT_THAT(refusal([](Json& d) { d["model"]["merges"] = {"b a"}; }),
              HasSubstr("its result \"ba\" is not in the vocabulary"));
  EXPECT_THAT(refusal([](Json& d) {
                d["model"]["merges"] = {"a b", "a b c"};
              }),
              HasSubstr("model.merges[1] is \"a b c\""));
  EXPECT_THAT(refusal([](Json& d) { d["model"]["merges"] = Json::array({Json::array({"a"})}); }),
              HasSubstr("model.merges[0] is [\"a\"]"));
  EXPECT_THAT(refusal([](Json& d) { d["model"]["merges"] = {7}; }), HasSubstr("model.merges[0] is 7"));
}

TEST(TokenizerErrors, NameAWrongRegex) {
  EXPECT_THAT(refusal([](Json& d) {
                d["pre_tokenizer"] = {
                    {"type", "Split"}, {"pattern", {{"Regex", "(a[b"}}}, {"behavior", "Isolated"}, {"invert", false}};
              }),
              HasSubstr("pre_tokenizer.pattern: the regex \"(a[b\" is wrong: "));
  EXPECT_THAT(refusal([](Json& d) {
                d["pre_tokenizer"] = {{"type", "Split"}, {"pattern", "x"}, {"behavior", "Isolated"}, {"invert", false}};
              }),
              HasSubstr("pre_tokenizer.pattern is \"x\""));
}

TEST(TokenizerErrors, NameAWrongMember) {
  EXPECT_THAT(refusal([](Json& d) { d["model"]["dropout"] = 0.1; }), HasSubstr("model.dropout is 0.1"));
  EXPECT_THAT(refusal([](Json& d) { d["model"]["fuse_unk"] = "yes"; }),
              HasSubstr("model.fuse_unk is \"yes\"; expected true or false"));
  EXPECT_THAT(refusal([](Json& d) {
                d["pre_tokenizer"] = {{"type", "FixedLength"}, {"length", 0}};
              }),
              HasSubstr("length is 0"));
  EXPECT_THAT(refusal([](Json& d) {
                d["pre_tokenizer"] = {{"type", "CharDelimiterSplit"}, {"delimiter", "ab"}};
              }),
              HasSubstr("expected one character"));
  EXPECT_THAT(refusal([](Json& d) {
                d["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", "AAAA"}};
              }),
              HasSubstr("precompiled_charsmap"));
  EXPECT_THAT(refusal([](Json& d) {
                d["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", "?"}};
              }),
              HasSubstr("base64"));
  EXPECT_THAT(refusal([](Json& d) {
                d["model"] = {{"type", "Unigram"}, {"unk_id", 5}, {"vocab", {{"a", 0.0}}}};
                d["model"]["vocab"] = Json::array({Json::array({"a", 0.0})});
              }),
              HasSubstr("model.unk_id is 5; expected below 1"));
}

TEST(TokenizerErrors, NameAnAddedTokenOfAnotherId) {
  EXPECT_THAT(refusal([](Json& d) { d["added_tokens"] = Json::array({added(5, "<x>")}); }),
              HasSubstr("added_tokens[0]: \"<x>\" has id 5; by the vocabulary and the tokens before it its id is 3"));
  EXPECT_THAT(refusal([](Json& d) { d["added_tokens"] = Json::array({added(3, "a")}); }), HasSubstr("its id is 0"));
  EXPECT_THAT(refusal([](Json& d) { d["added_tokens"] = Json::array({added(-3, "<x>")}); }),
              HasSubstr("added_tokens[0].id is -3"));
  EXPECT_THAT(refusal([](Json& d) {
                d["post_processor"] = {{"type", "BertProcessing"}, {"cls", {"<s>", 9}}, {"sep", {"a", 0}}};
              }),
              HasSubstr("post_processor adds id 9"));
}

TEST(TokenizerErrors, UnknownTextIsRefusedWhereTheModelHasNoWordForIt) {
  Json document;
  document["model"] = {{"type", "WordLevel"}, {"unk_token", "<unk>"}, {"vocab", {{"a", 0}}}};
  const auto tokenizer = test::load_json(document);
  EXPECT_THROW(tokenizer->encode("b", false), Error);
  EXPECT_EQ(tokenizer->encode("a", false), std::vector<std::int32_t>{0});
  EXPECT_THROW(tokenizer->encode("a\xFF", false), Error);
}

TEST(FolderErrors, NameTheFileAndKey) {
  const auto refusal_with = [](const char* file, const char* text) {
    const test::TemporaryFolder folder;
    folder.write("tokenizer.json", sound_document().dump());
    folder.write(file, text);
    try {
      Tokenizer::load(folder.path());
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal_with("tokenizer_config.json", R"({"eos_token": "</s>"})"),
              HasSubstr("tokenizer_config.json: eos_token is \"</s>\""));
  EXPECT_THAT(refusal_with("tokenizer_config.json", R"({"add_bos_token": 1})"), HasSubstr("add_bos_token is 1"));
  EXPECT_THAT(refusal_with("special_tokens_map.json", "[]"), HasSubstr("special_tokens_map.json"));
  EXPECT_THAT(refusal_with("generation_config.json", R"({"eos_token_id": "x"})"),
              HasSubstr("generation_config.json: eos_token_id is \"x\""));
  const test::TemporaryFolder empty;
  EXPECT_THROW(Tokenizer::load(empty.path()), Error);
}

}  // namespace
}  // namespace heddle
