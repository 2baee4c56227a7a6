#pragma once

#include <filesystem>
#include <vector>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/json_entry.h"

namespace heddle {

/// What Hugging Face's files beside a tokenizer say of added and special tokens. A bare file has none of it.
struct TokenizerSettings : AddedTokenLists {
  enum class Beside { tokenizer_json, sentencepiece };

  bool is_folder = false;
  bool names_bos = false, names_eos = false, names_unk = false;

  // Of LlamaTokenizer and GemmaTokenizer, which read SentencePiece files:
  /// add_dummy_prefix holds for each text between added tokens; else for the first alone, by way of a prefix U+2581.
  bool legacy = true;
  bool add_prefix_space = true;  ///< whether the first text has that prefix

  /// Throws Error for a malformed file and, beside a SentencePiece file, for a tokenizer_class that numbers the pieces
  /// anew.
  static TokenizerSettings read(const std::filesystem::path& folder, Beside beside);
};

}  // namespace heddle
