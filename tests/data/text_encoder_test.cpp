#include "data/text_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "base/threads.h"
#include "data/row_records.h"
#include "letter_tokenizer.h"
#include "tokenizer_json.h"

namespace heddle {
namespace {

using Ids = std::vector<std::int32_t>;
using testing::HasSubstr;

Ids encode_in_windows(const Tokenizer& tokenizer, std::string_view text) {
  Ids ids;
  encode_text(tokenizer, read_from(text),
              [&](std::span<const std::int32_t> part) { ids.insert(ids.end(), part.begin(), part.end()); });
  return ids;
}

/// What texts are made of that might be cut in a wrong place.
std::string random_text(std::mt19937& random, std::size_t size) {
  static const std::vector<std::string> kPieces = {
      "the",    "hello", "wor",         "a",    "I",      "é",      "ß", "你好",   "가",     "1",
      "12",     ".",     ",",           "'s",   "'",      "!?",     " ", " ",      " ",      " ",
      "  ",     "\n",    "\n",          "\n\n", "\r\n",   "\t",     "▁", "\u00a0", "\u0301", "ﬁ",
      "\u3000", "<|x|>", "<|x|> <|x|>", "Cut",  "cut me", "\u0345", "ⅷ"};
  static const std::vector<std::string> kPlain = {"the", "hello", "wor", "a",  "I",   "1",
                                                  ".",   ",",     "'s",  "\n", "Cut", " "};
  std::string text;
  while (text.size() < size) {
    const auto& pieces = random() % 3 == 0 ? kPieces : kPlain;  // for a while: some cuts need plain text around
    for (std::size_t end = text.size() + 20 + random() % 150; text.size() < end;) {
      text += pieces[random() % pieces.size()];
      if (random() % 2 == 0) text += " ";
    }
  }
  return text;
}

Json words(std::initializer_list<const char*> tokens) {
  Json vocab = Json::object();
  for (const char* token : tokens) vocab[token] = vocab.size();
  return vocab;
}

Json document(Json normalizer, Json pre_tokenizer, Json model) {
  Json added = Json::array();
  int id = static_cast<int>(model["vocab"].size());
  const auto add = [&](const char* content, bool strip, bool normalized) {
    added.push_back({{"id", id++},
                     {"content", content},
                     {"single_word", strip},
                     {"lstrip", strip},
                     {"rstrip", strip},
                     {"normalized", normalized},
                     {"special", false}});
  };
  add("<|x|>", true, false);
  add("cut me", false, true);
  return {{"version", "1.0"},
          {"added_tokens", added},
          {"normalizer", std::move(normalizer)},
          {"pre_tokenizer", std::move(pre_tokenizer)},
          {"model", std::move(model)}};
}

Json letters_with(std::initializer_list<const char*> merges, bool byte_fallback) {
  Json vocab = Json::object();
  if (byte_fallback) {
    for (int byte = 0; byte < 256; ++byte) vocab[fmt::format("<0x{:02X}>", byte)] = vocab.size();
  }
  for (const char* token : {"<unk>", "▁", "é", "\n", "Ċ", "Ġ"}) vocab[token] = vocab.size();
  for (char c = '!'; c <= '~'; ++c) vocab[std::string(1, c)] = vocab.size();
  Json list = Json::array();
  for (const std::string merge : merges) {
    std::string joined = merge;
    joined.erase(joined.find(' '), 1);
    vocab[joined] = vocab.size();
    list.push_back(merge);
  }
  return {{"type", "BPE"},          {"unk_token", "<unk>"}, {"fuse_unk", true}, {"byte_fallback", byte_fallback},
          {"ignore_merges", false}, {"vocab", vocab},       {"merges", list}};
}

struct Case {
  std::string name;
  std::string text;  // tokenizer.json
  bool has_cuts;
};
void PrintTo(const Case& shown, std::ostream* out) { *out << shown.name; }

std::string split(const char* pattern) {
  return Json{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}}.dump();
}

const std::vector<Case>& cases() {
  const auto json = [](const char* text) { return Json::parse(text); };
  const Json prepend = json(R"({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]})");
  const Json mark = json(R"({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})");
  const Json apart = letters_with({"h e", "▁ t", "▁t h", "▁ ▁", "o r", "Ċ Ċ", "Ġ Ġ"}, true);
  const Json across = letters_with({"e ▁", "a ▁", "t ▁", "o ▁", "d ▁", "r ▁", "I ▁", "s ▁"}, false);
  const Json word_piece = {{"type", "WordPiece"},
                           {"unk_token", "[UNK]"},
                           {"continuing_subword_prefix", "##"},
                           {"max_input_chars_per_word", 20},
                           {"vocab", words({"[UNK]", "the", "hel", "##lo", "a", "1", "."})}};
  const Json words_model = {
      {"type", "WordLevel"}, {"unk_token", "[UNK]"}, {"vocab", words({"[UNK]", "the", "a", "▁the", "▁a"})}};
  const Json level =
      json(R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true})");
  const Json prefixed =
      json(R"({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true})");
  const auto metaspace = [](bool splits, const char* scheme) {
    return Json{{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", scheme}, {"split", splits}};
  };
  const auto form = [](const char* type) { return Json{{"type", type}}; };
  const Json bert = json(R"({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
      "strip_accents": null, "lowercase": true})");
  static const std::vector<Case> kCases = {
      {"marks before each text", document(prepend, nullptr, apart).dump(), true},
      {"marks alone", document(mark, nullptr, apart).dump(), true},
      {"marks, and spaces split",
       document(mark, json(R"({"type": "Split", "pattern": {"String": " "},
          "behavior": "MergedWithPrevious", "invert": false})"),
                apart)
           .dump(),
       true},
      {"merges across", document(mark, nullptr, letters_with({"e ▁", "a ▁"}, true)).dump(), true},
      {"merges across everywhere", document(mark, nullptr, across).dump(), false},
      {"a mark of another kind", document(json(R"({"type": "Prepend", "prepend": "_"})"), nullptr, apart).dump(),
       false},
      {"metaspace", document(nullptr, metaspace(true, "first"), words_model).dump(), true},
      {"metaspace always", document(form("NFKC"), metaspace(true, "always"), words_model).dump(), true},
      {"metaspace never", document(nullptr, metaspace(true, "never"), apart).dump(), true},
      {"metaspace unsplit", document(nullptr, metaspace(false, "first"), apart).dump(), true},
      {"byte level", document(nullptr, level, apart).dump(), true},
      {"byte level, NFC", document(form("NFC"), level, apart).dump(), true},
      {"byte level, prefixed", document(nullptr, prefixed, apart).dump(), true},
      {"white space", document(form("Lowercase"), form("WhitespaceSplit"), word_piece).dump(), true},
      {"words", document(nullptr, form("Whitespace"), word_piece).dump(), true},
      {"BERT", document(bert, form("BertPreTokenizer"), word_piece).dump(), true},
      {"stripped",
       document(json(R"({"type": "Strip", "strip_left": true, "strip_right": true})"), form("Whitespace"), word_piece)
           .dump(),
       false},
      {"spaces of regex",
       document(json(R"({"type": "Replace", "pattern": {"Regex": "e +t"}, "content": "x"})"), form("Whitespace"),
                word_piece)
           .dump(),
       false},
      {"unknown pattern", document(nullptr, Json::parse(split("e h|.")), word_piece).dump(), false},
      {"fixed length", document(nullptr, json(R"({"type": "FixedLength", "length": 5})"), word_piece).dump(), false},
      {"no split, other model", document(nullptr, nullptr, word_piece).dump(), false},
  };
  return kCases;
}

class Cuts : public testing::TestWithParam<Case> {};

TEST_P(Cuts, LeaveTheIdsOfTheWholeText) {
  const auto tokenizer = test::load_text(GetParam().text);
  std::mt19937 random(7);
  int cuts = 0;
  for (int round = 0; round < 150; ++round) {
    const std::string text = random_text(random, 400);
    const Ids whole = tokenizer->encode(text, false);
    for (std::size_t from = 1; from < text.size(); from += 11) {
      const auto cut = tokenizer->find_cut(text, from);
      if (!cut) break;
      ++cuts;
      ASSERT_GE(cut->end, from);
      Ids parts = tokenizer->encode(std::string_view(text).substr(0, cut->end), false);
      const Ids second = tokenizer->encode(std::string_view(text).substr(cut->begin), false);
      parts.insert(parts.end(), second.begin(), second.end());
      ASSERT_EQ(parts, whole) << text << "\ncut at " << cut->end;
      // Whatever follows, it stays a cut.
      const std::string longer = text + random_text(random, 40);
      const auto again = tokenizer->find_cut(longer, from);
      ASSERT_TRUE(again && again->end == cut->end && again->begin == cut->begin);
    }
  }
  EXPECT_EQ(cuts > 50, GetParam().has_cuts) << cuts;
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, Cuts, testing::ValuesIn(cases()), [](const testing::TestParamInfo<Case>& test) {
  std::string name = test.param.name;
  std::erase_if(name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; });
  return name;
});

class LongText : public testing::TestWithParam<const char*> {};

TEST_P(LongText, HasTheIdsOfTheWholeWhateverTheThreads) {
  const auto folder = test::data_folder();
  const auto path = folder / "tokenizers/hf_json" / (std::string(GetParam()) + ".tokenizer.json");
  const auto book = folder / "datasets/gutenberg/war-and-peace.txt";
  if (!std::filesystem::exists(path) || !std::filesystem::exists(book))
    GTEST_SKIP() << "no reference data at " << folder;
  const auto tokenizer = Tokenizer::load(path);
  std::string text = test::read_bytes(book);
  text += text + text;  // longer than a window
  const Ids whole = tokenizer->encode(text, false);
  const int before = threads();
  for (const int count : {1, 2, 3}) {
    set_threads(count);
    EXPECT_TRUE(encode_text(*tokenizer, text) == whole) << count;
    EXPECT_TRUE(encode_in_windows(*tokenizer, text) == whole) << count;
  }
  set_threads(before);
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, LongText, testing::Values("gpt2", "llama2", "llama3", "qwen3"),
                         [](const auto& test) { return std::string(test.param); });

TEST(EncodeText, ATextWithoutCutsIsEncodedAsOne) {
  const LetterTokenizer tokenizer;
  std::string text(std::size_t{20} << 20, 'a');
  text.back() = 'b';
  const Ids ids = encode_in_windows(tokenizer, text);
  ASSERT_EQ(ids.size(), text.size());
  EXPECT_EQ(ids.back(), 2);
  EXPECT_EQ(tokenizer.texts_encoded, 1);
}

TEST(EncodeText, PartsComeInOrder) {
  const auto tokenizer = Tokenizer::bytes();
  std::string text;
  for (int i = 0; text.size() < (std::size_t{17} << 20); ++i) text += std::to_string(i);
  const Ids ids = encode_in_windows(*tokenizer, text);
  ASSERT_EQ(ids.size(), text.size());
  EXPECT_TRUE(std::equal(ids.begin(), ids.end(), text.begin(), [](std::int32_t id, char c) { return id == c; }));
  EXPECT_EQ(encode_in_windows(*tokenizer, ""), Ids());
}

TEST(EncodeText, ABrokenByteIsNamedByLineAndColumnInAnyWindow) {
  const auto tokenizer = Tokenizer::bytes();
  const auto error_of = [&](const std::string& text) -> std::string {
    try {
      encode_in_windows(*tokenizer, text);
    } catch (const RowError& error) {
      return fmt::format("{}: {}", error.line(), error.what());
    }
    return "no error";
  };
  const std::string start(std::size_t{9} << 20, 'x');
  EXPECT_EQ(error_of("ab\nc\xff"), "2: byte 0xFF at column 2 is not valid UTF-8");
  EXPECT_EQ(error_of("a\n" + start + "\nyz\xc3(\n"), "3: byte 0xC3 at column 3 is not valid UTF-8");
  EXPECT_EQ(error_of("a\n" + start + "\xff"),
            fmt::format("2: byte 0xFF at column {} is not valid UTF-8", start.size() + 1));
  EXPECT_EQ(error_of("ab\xe4\xbd"), "1: byte 0xE4 at column 3 is not valid UTF-8");  // cut off at the end
  // A character that lies across the end of a window is whole.
  const std::size_t window = std::size_t{8} << 20;
  for (std::size_t before = window - 4; before <= window; ++before) {
    EXPECT_EQ(error_of(std::string(before, 'x') + "\xf0\x9f\x98\x80y"), "no error") << before;
  }
}

TEST(EncodeText, WhatTheTokenizerThrowsComesThrough) {
  // A WordPiece model without its unknown token refuses text that it does not know.
  const auto tokenizer =
      test::load_text(document(nullptr, {{"type", "WhitespaceSplit"}},
                               {{"type", "WordLevel"}, {"unk_token", "?"}, {"vocab", words({"a", "b"})}})
                          .dump());
  std::string text;
  while (text.size() < (std::size_t{1} << 20)) text += "a b ";
  EXPECT_EQ(encode_text(*tokenizer, text).size(), text.size() / 2);
  text[500002] = 'c';
  EXPECT_THROW(encode_text(*tokenizer, text), Error);
}

}  // namespace
}  // namespace heddle
