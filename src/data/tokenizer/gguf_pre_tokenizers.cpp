#include "data/tokenizer/gguf_pre_tokenizers.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <vector>

// The names that llama.cpp's converter gives to the pre-tokenizers of published models, and the patterns that their
// tokenizer.json files have.
namespace heddle {
namespace {

// Of words with contractions in any case (GPT-4 and its kin), by how many digits stay together.
constexpr std::string_view kDigitTriples =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kSingleDigits =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kSingleDigitsMarks =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kSeedCoder =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kBailing =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kBetweenPunctuation = R"( ?[^(\s|[.,!?…。，、।۔،])]+)";

// DeepSeek's: letters of scripts with case (by number: normalization would change some), punctuation, Chinese, Japanese
// and Korean.
constexpr std::string_view kDeepSeekLetters =
    "\\s?[A-Za-z"
    "\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293\u0295-\u02AF\u0370-\u0373\u0376"
    "\u0377\u037B-\u037D\u037F\u0386\u0388-\u038A\u038C\u038E-\u03A1\u03A3-\u03F5\u03F7-\u0481\u048A-\u052F"
    "\u0531-\u0556\u10A0-\u10C5\u13A0-\u13F5\u13F8-\u13FD\u1C90-\u1CBA\u1CBD-\u1CBF\u1D00-\u1D2B\u1D6B-\u1D77"
    "\u1D79-\u1D9A\u1E00-\u1F15\u1F18-\u1F1D\u1F20-\u1F45\u1F48-\u1F4D\u1F50-\u1F57\u1F59\u1F5B\u1F5D"
    "\u1F5F-\u1F7D\u1F80-\u1FB4\u1FB6-\u1FBC\u1FBE\u1FC2-\u1FC4\u1FC6-\u1FCC\u1FD0-\u1FD3\u1FD6-\u1FDB"
    "\u1FE0-\u1FEC\u1FF2-\u1FF4\u1FF6-\u1FFC\u2102\u2107\u210A-\u2113\u2115\u2119-\u211D\u2124\u2126\u2128"
    "\u212A-\u212D\u212F-\u2134\u2139\u213C-\u213F\u2145-\u2149\u214E\u2183\u2184\u2C00-\u2C7B\u2C7E-\u2CE4"
    "\u2CEB-\u2CEE\u2CF2\u2CF3\uA640-\uA66D\uA680-\uA69B\uA722-\uA76F\uA771-\uA787\uA78B-\uA78E\uAB70-\uABBF"
    "\uFB00-\uFB06\uFB13-\uFB17\uFF21-\uFF3A\uFF41-\uFF5A\U00010400-\U0001044F\U000104B0-\U000104D3"
    "\U000104D8-\U000104FB\U00010C80-\U00010CB2\U00010CC0-\U00010CF2\U000118A0-\U000118DF\U0001E900-\U0001E943"
    "]+";
constexpr std::string_view kDeepSeekPunctuation = R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)";
constexpr std::string_view kDeepSeekIdeographs = "[一-龥ࠀ-一가-퟿]+";
constexpr std::string_view kDeepSeekV3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

Json split(std::string_view pattern) {
  return {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
}

Json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

Json digits(bool individual) { return {{"type", "Digits"}, {"individual_digits", individual}}; }

Json sequence(Json parts) { return {{"type", "Sequence"}, {"pretokenizers", std::move(parts)}}; }

/// Cut by one pattern after the other, then to bytes.
Json splits(std::initializer_list<std::string_view> patterns) {
  Json parts = Json::array();
  for (const std::string_view pattern : patterns) parts.push_back(split(pattern));
  parts.push_back(byte_level(false));
  return sequence(std::move(parts));
}

Json gpt2() { return byte_level(true); }
Json gpt2_between_digits() { return sequence(Json::array({digits(true), byte_level(true)})); }
Json digit_triples() { return splits({kDigitTriples}); }
Json single_digits() { return splits({kSingleDigits}); }
Json single_digits_marks() { return splits({kSingleDigitsMarks}); }
Json without_contractions() {
  return splits({R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"});
}
Json seed_coder() { return splits({kSeedCoder}); }
Json bailing() { return splits({kBailing}); }
Json tekken() { return splits({kTekken}); }
Json gpt4o() { return splits({kGpt4o}); }
Json between_punctuation() { return splits({kBetweenPunctuation}); }
Json viking() { return splits({kBetweenPunctuation, R"(\p{N})"}); }
Json super_bpe() { return splits({R"(\p{N}+)", R"((?=(\d{3})+(?!\d)))"}); }
Json mini_cpm5() {
  return splits(
      {R"(\p{N}{1,3})",
       R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"});
}
Json falcon() {
  return sequence(Json::array({Json{{"type", "Punctuation"}, {"behavior", "Contiguous"}}, byte_level(true),
                               digits(false), split("[0-9][0-9][0-9]")}));
}
Json deepseek_llm() {
  return splits({"[\r\n]", kDeepSeekLetters, kDeepSeekPunctuation, R"(\s+$)", kDeepSeekIdeographs, R"(\p{N}+)"});
}
Json deepseek_coder() { return splits({"[\r\n]", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kDeepSeekIdeographs, R"(\p{N})"}); }
Json deepseek_v3() { return splits({R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+", kDeepSeekV3}); }
/// What llama.cpp does where a file names none.
Json unnamed() { return splits({R"([\p{P}\$\+<=>\^~\|]+)", kGpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}); }

enum Trait : unsigned { plain = 0, nfc = 1, ignores_merges = 2, bos = 4 };

struct Named {
  std::string_view names;  // separated by blanks
  Json (*make)();
  unsigned traits;
};

constexpr std::array kNamed = {
    Named{"default", unnamed, plain},
    Named{"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano", digit_triples,
          ignores_merges | bos},
    Named{"dbrx smaug-bpe glm4 chatglm-bpe", digit_triples, plain},
    Named{"qwen2 deepseek-r1-qwen kormo f2llmv2", single_digits, nfc},
    Named{"stablelm2 hunyuan solar-open megrez grok-2", single_digits, plain},
    Named{"qwen35", single_digits_marks, plain},
    Named{"ufakzeka", without_contractions, plain},
    Named{"seed-coder", seed_coder, plain},
    Named{"bailingmoe bailingmoe2 llada-moe", bailing, plain},
    Named{"minicpm5", mini_cpm5, ignores_merges},
    Named{"tekken", tekken, ignores_merges | bos},
    Named{"gpt-4o llama4 kanana2 talkie minimax-m2", gpt4o, plain},
    Named{
        "gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de jina-v1-en jina-v2-code roberta-bpe gigachat a.x-4.0 mellum "
        "modern-bert exaone4 jais trillion granite-docling",
        gpt2, plain},
    Named{"mpt olmo", gpt2, nfc},
    Named{"starcoder refact command-r smollm codeshell exaone minerva-7b mellum2", gpt2_between_digits, plain},
    Named{"falcon", falcon, plain},
    Named{"deepseek-llm", deepseek_llm, plain},
    Named{"deepseek-coder", deepseek_coder, plain},
    Named{"deepseek-v3 hunyuan-dense joyai-llm hy_v4", deepseek_v3, plain},
    Named{"poro-chat bloom gpt3-finnish", between_punctuation, plain},
    Named{"viking", viking, plain},
    Named{"superbpe", super_bpe, plain},
};

bool lists(std::string_view names, std::string_view name) {
  while (!names.empty()) {
    const std::size_t end = std::min(names.find(' '), names.size());
    if (names.substr(0, end) == name) return true;
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return false;
}

/// What a pre-tokenizer or normalizer does, step by step, each spelled in one way.
void append_steps(const Json& step, std::vector<std::string>& steps) {
  if (!step.is_object()) return;
  const std::string type = step.value("type", "");
  for (const char* parts : {"pretokenizers", "normalizers"}) {
    if (!step.contains(parts)) continue;
    for (const Json& part : step[parts]) append_steps(part, steps);
    return;
  }
  if (type == "Split" && step.contains("pattern")) {
    // Taking out all but the matches leaves the matches too, where the pattern leaves nothing out.
    const bool isolates = step.value("behavior", "") == "Isolated" ||
                          (step.value("behavior", "") == "Removed" && step.value("invert", false));
    steps.push_back((isolates ? "split " : "other split ") + step["pattern"].value("Regex", step["pattern"].dump()));
  } else if (type == "ByteLevel") {
    if (step.value("use_regex", true)) steps.push_back("split " + std::string(kGpt2));
    steps.emplace_back(step.value("add_prefix_space", true) ? "bytes with a blank" : "bytes");
  } else if (type == "Digits") {
    steps.emplace_back(step.value("individual_digits", false) ? "each digit" : "digits");
  } else if (type == "Punctuation") {
    steps.push_back("punctuation " + step.value("behavior", "Isolated"));
  } else {
    steps.push_back(type);
  }
}

std::vector<std::string> steps_of(const Json& normalizer, const Json& pre_tokenizer) {
  std::vector<std::string> steps;
  append_steps(normalizer, steps);
  append_steps(pre_tokenizer, steps);
  return steps;
}

}  // namespace

std::string gguf_pre_tokenizer_name(const Json& document) {
  const auto steps = steps_of(document.value("normalizer", Json()), document.value("pre_tokenizer", Json()));
  const bool ignores = document.at("model").value("ignore_merges", false);
  for (const Named& named : kNamed) {
    std::string name(named.names.substr(0, named.names.find(' ')));
    const auto found = *find_gguf_pre_tokenizer(name);
    if (name != "default" && found.ignore_merges == ignores && steps_of(found.normalizer, found.pre_tokenizer) == steps)
      return name;
  }
  return "";
}

std::optional<GgufPreTokenizer> find_gguf_pre_tokenizer(std::string_view name) {
  for (const Named& named : kNamed) {
    if (!lists(named.names, name)) continue;
    GgufPreTokenizer found;
    found.pre_tokenizer = named.make();
    if ((named.traits & nfc) != 0) found.normalizer = {{"type", "NFC"}};
    found.ignore_merges = (named.traits & ignores_merges) != 0;
    found.adds_bos = (named.traits & bos) != 0;
    return found;
  }
  return std::nullopt;
}

}  // namespace heddle
