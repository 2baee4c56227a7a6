// Each kind of part in a small tokenizer whose ids show the bytes of the words it sees. Expected values follow from the
// definitions in Hugging Face's documentation (https://huggingface.co/docs/tokenizers/components).
#include <gtest/gtest.h>

#include "tokenizer_json.h"

namespace heddle {
namespace {

using Strings = std::vector<std::string>;
using Ids = std::vector<std::int32_t>;

/// BPE without merges over the 256 bytes; the suffix marks where words end.
Json byte_document() {
  Json document = {{"added_tokens", Json::array()}};
  Json& model = document["model"];
  model = {{"type", "BPE"}, {"byte_fallback", true}, {"end_of_word_suffix", "</w>"}, {"merges", Json::array()}};
  for (int byte = 0; byte < 256; ++byte) model["vocab"][fmt::format("<0x{:02X}>", byte)] = byte;
  return document;
}

Strings words_of(const Json& document, const std::string& text) {
  std::string bytes;
  for (const std::int32_t id : test::load_json(document)->encode(text, false)) bytes.push_back(static_cast<char>(id));
  Strings words;
  for (std::size_t begin = 0, end; (end = bytes.find("</w>", begin)) != std::string::npos; begin = end + 4) {
    words.push_back(bytes.substr(begin, end - begin));
  }
  return words;
}

Strings split(const Json& pre_tokenizer, const std::string& text) {
  Json document = byte_document();
  document["pre_tokenizer"] = pre_tokenizer;
  return words_of(document, text);
}

std::string normalized(const Json& normalizer, const std::string& text) {
  Json document = byte_document();
  document["normalizer"] = normalizer;
  const Strings words = words_of(document, text);
  return words.empty() ? "" : words.at(0);
}

std::string decoded(const Json& decoder, const Strings& tokens) {
  Json document = {{"decoder", decoder}};
  document["model"] = {{"type", "WordLevel"}, {"unk_token", ""}};
  Ids ids;
  for (const std::string& token : tokens) {
    Json& vocab = document["model"]["vocab"];
    if (!vocab.contains(token)) vocab[token] = vocab.size();
    ids.push_back(vocab[token].get<std::int32_t>());
  }
  return test::load_json(document)->decode(ids, false);
}

TEST(SplitPreTokenizer, BehavesAsDocumentedForEachBehavior) {
  const auto cut = [](const char* behavior) {
    return split({{"type", "Split"}, {"pattern", {{"String", "-"}}}, {"behavior", behavior}, {"invert", false}},
                 "the-final--countdown");
  };
  EXPECT_EQ(cut("Removed"), (Strings{"the", "final", "countdown"}));
  EXPECT_EQ(cut("Isolated"), (Strings{"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(cut("MergedWithPrevious"), (Strings{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(cut("MergedWithNext"), (Strings{"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(cut("Contiguous"), (Strings{"the", "-", "final", "--", "countdown"}));
}

TEST(SplitPreTokenizer, InvertKeepsWhatMatches) {
  const Json regex = {
      {"type", "Split"}, {"pattern", {{"Regex", "\\w+|[^\\w\\s]+"}}}, {"behavior", "Removed"}, {"invert", true}};
  EXPECT_EQ(split(regex, "Hey, man!  Yes"), (Strings{"Hey", ",", "man", "!", "Yes"}));
}

TEST(PreTokenizers, CutAsTheirNamesSay) {
  EXPECT_EQ(split({{"type", "Whitespace"}}, "Hey you!!  \xC3\xA9t\xC3\xA9_1"),
            (Strings{"Hey", "you", "!!", "\xC3\xA9t\xC3\xA9_1"}));
  EXPECT_EQ(split({{"type", "WhitespaceSplit"}}, "Hey, you!"), (Strings{"Hey,", "you!"}));
  EXPECT_EQ(split({{"type", "BertPreTokenizer"}}, "Hey, you"), (Strings{"Hey", ",", "you"}));
  EXPECT_EQ(split({{"type", "Punctuation"}, {"behavior", "Contiguous"}}, "a?!b"), (Strings{"a", "?!", "b"}));
  EXPECT_EQ(split({{"type", "Digits"}, {"individual_digits", true}}, "a12b"), (Strings{"a", "1", "2", "b"}));
  EXPECT_EQ(split({{"type", "Digits"}, {"individual_digits", false}}, "a12b"), (Strings{"a", "12", "b"}));
  EXPECT_EQ(split({{"type", "CharDelimiterSplit"}, {"delimiter", "x"}}, "axbxxc"), (Strings{"a", "b", "c"}));
  EXPECT_EQ(split({{"type", "FixedLength"}, {"length", 2}},
                  "a\xC3\xA9"
                  "bcd"),
            (Strings{"a\xC3\xA9", "bc", "d"}));
  const Json chain = {
      {"type", "Sequence"},
      {"pretokenizers", {{{"type", "WhitespaceSplit"}}, {{"type", "Digits"}, {"individual_digits", true}}}}};
  EXPECT_EQ(split(chain, "a1 b"), (Strings{"a", "1", "b"}));
}

TEST(PreTokenizers, ByteLevelPrependsASpaceOnlyWhereNoneIs) {
  const Json level = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
  EXPECT_EQ(split(level, "Hey you").size(), 2U);
  EXPECT_EQ(split(level, "Hey you"), split(level, " Hey you"));
}

TEST(MetaspacePreTokenizer, FirstPrependsAtTheStartOfTheInputOnly) {
  const std::string mark = "\xE2\x96\x81";
  Json document = byte_document();
  document["added_tokens"] = {{{"id", 256},
                               {"content", "<s>"},
                               {"single_word", false},
                               {"lstrip", false},
                               {"rstrip", false},
                               {"normalized", false},
                               {"special", true}}};
  const auto ids_of = [&](const char* scheme, const std::string& text) {
    document["pre_tokenizer"] = {
        {"type", "Metaspace"}, {"replacement", mark}, {"prepend_scheme", scheme}, {"split", true}};
    return test::load_json(document)->encode(text, false);
  };
  EXPECT_EQ(ids_of("first", "a b<s>c"), ids_of("never", mark + "a" + mark + "b<s>c"));
  EXPECT_EQ(ids_of("always", "a b<s>c"), ids_of("never", mark + "a" + mark + "b<s>" + mark + "c"));
}

TEST(Normalizers, ChangeTextAsTheirNamesSay) {
  EXPECT_EQ(normalized({{"type", "NFC"}}, "e\xCC\x81"), "\xC3\xA9");
  EXPECT_EQ(normalized({{"type", "NFD"}}, "\xC3\xA9"), "e\xCC\x81");
  EXPECT_EQ(normalized({{"type", "NFKC"}}, "\xEF\xAC\x81\xE2\x85\xA7"), "fiVIII");
  EXPECT_EQ(normalized({{"type", "NFKD"}}, "\xEF\xAC\x81\xC3\xA9"), "fie\xCC\x81");
  EXPECT_EQ(normalized({{"type", "Lowercase"}}, "\xC3\x89T\xC3\x89 \xC4\xB0"), "\xC3\xA9t\xC3\xA9 i\xCC\x87");
  EXPECT_EQ(normalized({{"type", "StripAccents"}}, "e\xCC\x81t"), "et");
  EXPECT_EQ(normalized({{"type", "Strip"}, {"strip_left", true}, {"strip_right", false}}, " \xC2\xA0x "), "x ");
  EXPECT_EQ(normalized({{"type", "Strip"}, {"strip_left", false}, {"strip_right", true}}, " x \n"), " x");
  EXPECT_EQ(normalized({{"type", "Prepend"}, {"prepend", "_"}}, "x"), "_x");
  EXPECT_EQ(normalized({{"type", "Nmt"}}, "a\x01\tb\xEF\xBB\xBF"), "a b ");
  EXPECT_EQ(normalized({{"type", "ByteLevel"}}, "a \xC3\xA9"), "a\xC4\xA0\xC3\x83\xC2\xA9");
  EXPECT_EQ(normalized({{"type", "Replace"}, {"pattern", {{"String", "."}}}, {"content", "!"}}, "a.b"), "a!b");
  EXPECT_EQ(normalized({{"type", "Replace"}, {"pattern", {{"Regex", "\\s+"}}}, {"content", "_"}}, "a \n b"), "a_b");
  const Json bert = {{"type", "BertNormalizer"},
                     {"clean_text", true},
                     {"handle_chinese_chars", true},
                     {"strip_accents", nullptr},
                     {"lowercase", true}};
  EXPECT_EQ(normalized(bert, "\xC3\x89\x01\t\xE4\xBD\xA0"), "e  \xE4\xBD\xA0 ");
  const Json chain = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFD"}}, {{"type", "StripAccents"}}}}};
  EXPECT_EQ(normalized(chain, "\xC3\xA9"), "e");
}

// SentencePiece's charsmap, made by hand: a Darts double array with the one rule "a" -> "bc".
TEST(Normalizers, PrecompiledReplacesByItsRules) {
  std::vector<std::uint32_t> units(512, 0x80000000U);
  units[0] = 256U << 10;                          // root: offset 256
  units[256 ^ 'a'] = ('a') | 1U << 8 | 1U << 10;  // label a, has a leaf, offset 1
  units[(256 ^ 'a') ^ 1] = 0x80000000U;           // value 0
  std::string bytes(4, '\0');
  const auto size = static_cast<std::uint32_t>(units.size() * 4);
  std::memcpy(bytes.data(), &size, 4);
  bytes.append(reinterpret_cast<const char*>(units.data()), size);
  bytes += std::string("bc\0", 3);
  static constexpr char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string base64;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      bits = bits << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    }
    for (int shift = 18; shift >= 0; shift -= 6) base64 += digits[bits >> shift & 63];
  }
  EXPECT_EQ(normalized({{"type", "Precompiled"}, {"precompiled_charsmap", base64}}, "xaya"), "xbcybc");
}

TEST(Decoders, JoinTokensAsTheirNamesSay) {
  EXPECT_EQ(decoded(nullptr, {"a", "b"}), "a b");
  EXPECT_EQ(decoded({{"type", "Fuse"}}, {"a", "b"}), "ab");
  EXPECT_EQ(decoded({{"type", "ByteLevel"}}, {"\xC4\xA0"
                                              "a",
                                              "\xC3\x83", "\xC2\xA9"}),
            " a\xC3\xA9");
  EXPECT_EQ(decoded({{"type", "ByteLevel"}}, {"\xC3\x83", "x"}), "\xEF\xBF\xBDx");
  EXPECT_EQ(decoded({{"type", "ByteFallback"}}, {"<0xC3>", "<0xA9>", "x", "<0xC3>", "y"}), "\xC3\xA9x\xEF\xBF\xBDy");
  EXPECT_EQ(decoded({{"type", "Strip"}, {"content", "_"}, {"start", 1}, {"stop", 0}}, {"__a", "_b"}), "_ab");
  EXPECT_EQ(decoded({{"type", "Replace"}, {"pattern", {{"String", "_"}}}, {"content", " "}}, {"_a", "b_"}), " ab ");
  EXPECT_EQ(decoded({{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}, {"uh", "##ou", "h", "."}), "uhou h.");
  EXPECT_EQ(decoded({{"type", "BPEDecoder"}, {"suffix", "</w>"}}, {"he", "llo</w>", "you</w>"}), "hello you");
  const Json ctc = {{"type", "CTC"}, {"pad_token", "<pad>"}, {"word_delimiter_token", "|"}, {"cleanup", true}};
  EXPECT_EQ(decoded(ctc, {"<pad>", "h", "h", "e", "l", "l", "<pad>", "l", "o", "|", "x"}), "hello x");
  const Json metaspace = {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "always"}, {"split", true}};
  EXPECT_EQ(decoded(metaspace, {"_Hey", "_you"}), "Hey you");
}

TEST(WordPieceModel, TakesTheLongestTokenFirst) {
  Json document = {{"pre_tokenizer", {{"type", "WhitespaceSplit"}}}};
  document["model"] = {{"type", "WordPiece"},
                       {"unk_token", "[UNK]"},
                       {"continuing_subword_prefix", "##"},
                       {"max_input_chars_per_word", 9}};
  document["model"]["vocab"] = {{"[UNK]", 0}, {"un", 1}, {"##aff", 2}, {"##able", 3}, {"##a", 4}, {"u", 5}};
  document["post_processor"] = {{"type", "BertProcessing"}, {"sep", {"u", 5}}, {"cls", {"un", 1}}};
  const auto tokenizer = test::load_json(document);
  EXPECT_EQ(tokenizer->encode("unaffable unx unaffableun", false), (Ids{1, 2, 3, 0, 0}));
  EXPECT_EQ(tokenizer->encode("un", true), (Ids{1, 1, 5}));
}

TEST(UnigramModel, TakesTheMostProbableCut) {
  Json document;
  document["model"] = {{"type", "Unigram"}, {"unk_id", 0}, {"byte_fallback", false}};
  document["model"]["vocab"] =
      Json::parse(R"([["<unk>", 0], ["a", -1], ["b", -1], ["ab", -1.5], ["abc", -5], ["c", -1]])");
  const auto tokenizer = test::load_json(document);
  EXPECT_EQ(tokenizer->encode("abc", false), (Ids{3, 5}));      // -2.5, against -3 and -5
  EXPECT_EQ(tokenizer->encode("axyb", false), (Ids{1, 0, 2}));  // unknown ones are one
}

TEST(BpeModel, MergesByRankAndFusesUnknowns) {
  Json document;
  document["model"] = {{"type", "BPE"}, {"unk_token", "?"}, {"fuse_unk", true}, {"merges", {"b c", "a b", "a bc"}}};
  document["model"]["vocab"] = {{"?", 0}, {"a", 1}, {"b", 2}, {"c", 3}, {"ab", 4}, {"bc", 5}, {"abc", 6}};
  EXPECT_EQ(test::load_json(document)->encode("abab"
                                              "cxxab",
                                              false),
            (Ids{4, 6, 0, 4}));
  document["model"]["fuse_unk"] = false;
  document["model"]["merges"] = Json::parse(R"([["b", "c"], ["a", "b"]])");
  EXPECT_EQ(test::load_json(document)->encode("abcxx", false), (Ids{1, 5, 0, 0}));
  document["model"]["ignore_merges"] = true;
  EXPECT_EQ(test::load_json(document)->encode("abc", false), (Ids{6}));
}

/// Cutting long words where no merge reaches across gives what merging the whole would give.
TEST(BpeModel, LongWordsAreCutWithoutChangingIds) {
  Json document;
  document["model"] = {{"type", "BPE"}, {"merges", {"_ a", "a a", "_a a", "aa b", "_ _"}}};
  document["model"]["vocab"] = {{"_", 0}, {"a", 1}, {"b", 2}, {"_a", 3}, {"aa", 4}, {"_aa", 5}, {"aab", 6}, {"__", 7}};
  const auto tokenizer = test::load_json(document);
  Ids want;
  std::string text;
  for (int i = 0; i < 100; ++i) {  // _a, then aa and a b: (_a)(aa)(b) by rank; _aa needs a lone a
    text += "_aaab";
    want.insert(want.end(), {3, 6});
  }
  EXPECT_EQ(tokenizer->encode(text, false), want);
}

}  // namespace
}  // namespace heddle
