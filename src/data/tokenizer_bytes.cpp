#include "base/error.h"
#include "data/tokenizer.h"
#include "data/tokenizer/unicode.h"

namespace heddle {
namespace {

constexpr std::int32_t end_of_text = 256;
constexpr std::string_view end_of_text_token = "<|endoftext|>";

class ByteTokenizer final : public Tokenizer {
 public:
  std::vector<std::int32_t> encode(std::string_view text, bool) const override {
    std::vector<std::int32_t> ids;
    ids.reserve(text.size());
    for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
    return ids;
  }
  std::optional<Cut> find_cut(std::string_view text, std::size_t from) const override {
    return from < text.size() ? std::optional(Cut{from, from}) : std::nullopt;
  }
  std::string decode(std::span<const std::int32_t> ids, bool skip_special_tokens) const override {
    std::string bytes;
    for (const std::int32_t id : ids) {
      if (id >= 0 && id < end_of_text) bytes.push_back(static_cast<char>(id));
      if (id == end_of_text && !skip_special_tokens) bytes += end_of_text_token;
    }
    return unicode::to_valid(bytes);
  }
  std::int32_t vocab_size() const override { return end_of_text + 1; }
  std::optional<std::int32_t> token_to_id(std::string_view token) const override {
    if (token == end_of_text_token) return end_of_text;
    if (token.size() == 1) return static_cast<unsigned char>(token[0]);
    return std::nullopt;
  }
  std::string id_to_token(std::int32_t id) const override {
    if (id == end_of_text) return std::string(end_of_text_token);
    return id >= 0 && id < end_of_text ? std::string(1, static_cast<char>(id)) : std::string();
  }
  std::optional<std::int32_t> bos_id() const override { return std::nullopt; }
  std::optional<std::int32_t> eos_id() const override { return end_of_text; }
  std::optional<bool> add_bos_token() const override { return std::nullopt; }
  std::optional<bool> add_eos_token() const override { return std::nullopt; }
  std::string fingerprint() const override { return "bytes"; }
};

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::bytes() { return std::make_unique<ByteTokenizer>(); }

}  // namespace heddle
