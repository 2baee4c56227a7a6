#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/tokenizer/sentencepiece_tokenizer.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

template <typename Function>
void allow_refusal(Function function) {
  try {
    function();
  } catch (const heddle::Error& error) {
    require(std::string(error.what()).find('\n') == std::string::npos);
  }
}

heddle::TokenizerSettings folder_settings(bool legacy) {
  heddle::TokenizerSettings settings;
  settings.is_folder = true;
  settings.legacy = legacy;
  heddle::AddedToken token;
  token.content = "b";
  token.id = 1;
  token.single_word = token.lstrip = token.rstrip = legacy;
  settings.added = {token};
  return settings;
}

}  // namespace

// Any bytes are refused with a one-line Error, or give a tokenizer whose ids are below its vocab_size, and that decodes
// any ids.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  allow_refusal([&] {
    const auto model = heddle::SentencePieceModel::parse(bytes, "tokenizer.model");
    for (const auto& settings : {heddle::TokenizerSettings{}, folder_settings(false), folder_settings(true)}) {
      const heddle::SentencePieceTokenizer tokenizer(model, settings, "tokenizer.model", "");
      std::vector<std::int32_t> all;
      for (std::int32_t id = -1; id <= tokenizer.vocab_size() && id < 400; ++id) all.push_back(id);
      for (const bool skip : {false, true}) tokenizer.decode(all, skip);
      for (const char* input :
           {"", "abba", " a  b\n", "<s>h\xc3\xa9llo \xf0\x9f\x98\x80</s>", "b \xe2\x96\x81 b", "   "}) {
        const auto ids = tokenizer.encode(input, true);
        for (const auto id : ids) require(id >= 0 && id < tokenizer.vocab_size());
        tokenizer.decode(ids, false);
      }
    }
  });
  return 0;
}
