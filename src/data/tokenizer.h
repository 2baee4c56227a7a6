#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// Text to ids and back, exactly as Hugging Face's `tokenizers` or `sentencepiece` does it. Immutable after loading;
/// all members may be called from many threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Reads a bare tokenizer.json or tokenizer.model (SentencePiece), a GGUF file, or a model folder with one of these
  /// or GPT-2's vocab.json and merges.txt (its tokenizer_config.json, generation_config.json and config.json name the
  /// special tokens). Throws Error naming file and key for anything malformed or unknown.
  static std::unique_ptr<Tokenizer> load(const std::filesystem::path& path);
  /// Ids 0-255 are the bytes of UTF-8; 256 is end-of-text.
  static std::unique_ptr<Tokenizer> bytes();

  virtual std::vector<std::int32_t> encode(std::string_view text, bool add_special_tokens) const = 0;
  /// Where a long text may be cut for encoding its parts one by one:
  /// encode(text, false) == encode(text[0, end), false) + encode(text[begin, size), false).
  struct Cut {
    std::size_t end, begin;
  };
  /// The first such place with end >= from > 0, which holds whatever may follow `text`; nothing where none is known.
  /// `text` is UTF-8, but for a character that its end cuts off.
  virtual std::optional<Cut> find_cut(std::string_view, std::size_t) const { return std::nullopt; }
  /// As `tokenizer.decode(ids, skip_special_tokens=...)`; ids that do not exist give nothing.
  virtual std::string decode(std::span<const std::int32_t> ids, bool skip_special_tokens) const = 0;
  /// Greatest id + 1.
  virtual std::int32_t vocab_size() const = 0;
  virtual std::optional<std::int32_t> token_to_id(std::string_view token) const = 0;
  virtual std::string id_to_token(std::int32_t id) const = 0;
  virtual std::optional<std::int32_t> bos_id() const = 0;
  /// End-of-text, appended to each text row.
  virtual std::optional<std::int32_t> eos_id() const = 0;
  /// tokenizer_config.json's add_bos_token / add_eos_token, where said.
  virtual std::optional<bool> add_bos_token() const = 0;
  virtual std::optional<bool> add_eos_token() const = 0;
  /// A digest of everything that decides the ids; part of the key of the token cache.
  virtual std::string fingerprint() const = 0;
};

}  // namespace heddle
