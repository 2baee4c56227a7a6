#include "data/tokenizer/word_models.h"

#include <string>
#include <utility>

#include "base/error.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/unicode.h"
#include "data/tokenizer/unigram.h"

namespace heddle {
namespace {

class WordModel : public TokenModel {
 public:
  explicit WordModel(const JsonEntry& entry)
      : TokenModel(Vocabulary(entry.at("vocab"))),
        unk_token_(entry.string("unk_token")),
        unk_id_(vocabulary().find(unk_token_)) {}

 protected:
  void add_unknown(std::string_view word, std::vector<std::int32_t>& ids) const {
    if (unk_id_ == Vocabulary::none) {
      fail("tokenizer.json: model.unk_token is {}, which is not in model.vocab; it is needed for {}",
           Json(unk_token_).dump(), Json(std::string(word)).dump());
    }
    ids.push_back(unk_id_);
  }

 private:
  std::string unk_token_;
  std::int32_t unk_id_;
};

class WordLevel final : public WordModel {
 public:
  using WordModel::WordModel;
  void tokenize(std::string_view word, WordCache&, std::vector<std::int32_t>& ids) const override {
    const std::int32_t id = vocabulary().find(word);
    if (id == Vocabulary::none) {
      add_unknown(word, ids);
    } else {
      ids.push_back(id);
    }
  }
};

class WordPiece final : public WordModel {
 public:
  explicit WordPiece(const JsonEntry& entry)
      : WordModel(entry),
        prefix_(entry.string("continuing_subword_prefix")),
        longest_word_(static_cast<std::size_t>(entry.at("max_input_chars_per_word").count())) {}

  void tokenize(std::string_view word, WordCache& cache, std::vector<std::int32_t>& ids) const override {
    const std::size_t before = ids.size();
    if (unicode::count_characters(word) <= longest_word_ && cover(word, cache.text, ids)) return;
    ids.resize(before);
    add_unknown(word, ids);
  }

 private:
  bool cover(std::string_view word, std::string& candidate, std::vector<std::int32_t>& ids) const {
    for (std::size_t begin = 0; begin < word.size();) {
      candidate.assign(begin > 0 ? prefix_ : "");
      const std::size_t decoration = candidate.size();
      candidate += word.substr(begin);
      std::int32_t id = vocabulary().find(candidate);
      while (id == Vocabulary::none) {
        const unicode::Character last = unicode::decode_before(candidate, candidate.size());
        candidate.resize(candidate.size() - static_cast<std::size_t>(last.length));
        if (candidate.size() <= decoration) return false;
        id = vocabulary().find(candidate);
      }
      ids.push_back(id);
      begin += candidate.size() - decoration;
    }
    return true;
  }

  std::string prefix_;
  std::size_t longest_word_;
};

}  // namespace

std::unique_ptr<TokenModel> read_word_piece(const JsonEntry& entry) { return std::make_unique<WordPiece>(entry); }
std::unique_ptr<TokenModel> read_word_level(const JsonEntry& entry) { return std::make_unique<WordLevel>(entry); }

namespace {

enum class ModelType { bpe, unigram, word_piece, word_level };

/// Old files do not say the type: its members tell it.
ModelType find_type(const JsonEntry& entry) {
  static constexpr std::string_view names[] = {"BPE", "Unigram", "WordPiece", "WordLevel"};
  entry.require_object();
  if (entry.value().contains("type")) return static_cast<ModelType>(entry.type(names));
  if (entry.find("merges")) return ModelType::bpe;
  if (entry.at("vocab").value().is_array()) return ModelType::unigram;
  return entry.find("max_input_chars_per_word") ? ModelType::word_piece : ModelType::word_level;
}

}  // namespace

std::unique_ptr<TokenModel> TokenModel::read(const JsonEntry& entry) {
  switch (find_type(entry)) {
    case ModelType::bpe: return Bpe::read(entry);
    case ModelType::unigram: return Unigram::read(entry);
    case ModelType::word_piece: return read_word_piece(entry);
    case ModelType::word_level: return read_word_level(entry);
  }
  HEDDLE_CHECK(false);
}

}  // namespace heddle
