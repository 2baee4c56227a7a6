#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "data/tokenizer/hugging_face.h"
#include "data/tokenizer/json_entry.h"
#include "formats/json.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

// Any text is refused with a one-line Error, or gives a tokenizer whose ids are below its vocab_size and that decodes
// them. Some sound documents cannot encode a text (no unk_token), which is an Error too.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const heddle::Json document = heddle::parse_json(text, "tokenizer.json");
    const heddle::HuggingFaceTokenizer tokenizer(heddle::JsonEntry(document, "tokenizer.json"), "");
    for (const char* input : {"", "abba", " a b\n", "<s>h\xc3\xa9llo \xf0\x9f\x98\x80</s>", "123 it's"}) {
      try {
        const auto ids = tokenizer.encode(input, true);
        for (const auto id : ids) require(id >= 0 && id < tokenizer.vocab_size());
        tokenizer.decode(ids, false);
        tokenizer.decode(ids, true);
      } catch (const heddle::Error& error) {
        require(std::string(error.what()).find('\n') == std::string::npos);
      }
    }
  } catch (const heddle::Error& error) {
    require(std::string(error.what()).find('\n') == std::string::npos);
  }
  return 0;
}
