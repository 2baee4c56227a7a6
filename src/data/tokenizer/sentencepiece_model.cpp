#include "data/tokenizer/sentencepiece_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "data/tokenizer/unicode.h"
#include "data/tokenizer/wire_format.h"

namespace heddle {
namespace {

using Model = SentencePieceModel;

constexpr std::size_t most_pieces = std::size_t{1} << 24;
constexpr std::size_t longest_piece = 4096;  // bytes; those of real models stay below 200

/// Lines of a token in base64 and its rank.
bool is_tiktoken_file(std::string_view bytes) {
  const std::string_view line = bytes.substr(0, bytes.find('\n'));
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos || space == 0 || space + 1 == line.size()) return false;
  const auto is_base64 = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '+' || c == '/' ||
           c == '=';
  };
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || c == '\r'; };
  return std::all_of(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(space), is_base64) &&
         std::all_of(line.begin() + static_cast<std::ptrdiff_t>(space) + 1, line.end(), is_digit);
}

class Parser {
 public:
  explicit Parser(const std::string& file) : file_(file) {}

  Model read(std::string_view bytes) {
    WireReader reader(bytes, file_);
    for (WireField field; reader.next(field);) {
      switch (field.number) {
        case 1: read_piece(message(reader, field, "pieces")); break;
        case 2: read_trainer(message(reader, field, "trainer_spec")); break;
        case 3: read_normalization(message(reader, field, "normalizer_spec"), model_.normalizer); break;
        case 5:
          if (!model_.denormalizer) model_.denormalizer.emplace();
          read_normalization(message(reader, field, "denormalizer_spec"), *model_.denormalizer);
          break;
        default: break;  // self tests, extensions
      }
    }
    return std::move(model_);
  }

 private:
  static WireReader message(const WireReader& reader, const WireField& field, std::string_view name) {
    static_cast<void>(reader.bytes(field, name));
    return reader.inside(field);
  }

  std::string text(const WireReader& reader, const WireField& field, std::string_view name) const {
    const std::string_view value = reader.bytes(field, name);
    if (unicode::find_invalid(value) != std::string_view::npos) {
      fail("{}: byte {}: {} is not UTF-8", file_, field.offset, name);
    }
    return std::string(value);
  }

  void read_piece(WireReader reader) {
    Model::Piece piece;
    const std::size_t id = model_.pieces.size();
    if (id == most_pieces) fail("{}: it has more than {} pieces", file_, most_pieces);
    const auto name = [id](std::string_view member) { return fmt::format("pieces[{}].{}", id, member); };
    for (WireField field; reader.next(field);) {
      switch (field.number) {
        case 1: piece.text = text(reader, field, name("piece")); break;
        case 2: piece.score = reader.single(field, name("score")); break;
        case 3: {
          const std::int32_t type = reader.int32(field, name("type"));
          if (type < 1 || type > 6) fail("{}: {} is {}; expected 1 to 6", file_, name("type"), type);
          piece.type = static_cast<Model::PieceType>(type);
          break;
        }
        default: break;
      }
    }
    if (piece.text.empty()) fail("{}: {} is empty", file_, name("piece"));
    if (piece.text.size() > longest_piece) {
      fail("{}: {} has {} bytes; expected at most {}", file_, name("piece"), piece.text.size(), longest_piece);
    }
    if (piece.text.find('\0') != std::string::npos) fail("{}: {} holds the character U+0000", file_, name("piece"));
    if (!std::isfinite(piece.score)) {
      fail("{}: {} is {}; expected a finite number", file_, name("score"), piece.score);
    }
    model_.pieces.push_back(std::move(piece));
  }

  void read_trainer(WireReader reader) {
    for (WireField field; reader.next(field);) {
      switch (field.number) {
        case 3: read_algorithm(reader.int32(field, "trainer_spec.model_type")); break;
        case 24:
          model_.treat_whitespace_as_suffix = reader.boolean(field, "trainer_spec.treat_whitespace_as_suffix");
          break;
        case 35: model_.byte_fallback = reader.boolean(field, "trainer_spec.byte_fallback"); break;
        case 44: model_.unk_surface = text(reader, field, "trainer_spec.unk_surface"); break;
        case 45: read_name(reader, field, "trainer_spec.unk_piece", model_.unk_piece); break;
        case 46: read_name(reader, field, "trainer_spec.bos_piece", model_.bos_piece); break;
        case 47: read_name(reader, field, "trainer_spec.eos_piece", model_.eos_piece); break;
        case 48: read_name(reader, field, "trainer_spec.pad_piece", model_.pad_piece); break;
        default: break;  // how it was trained
      }
    }
  }

  void read_name(const WireReader& reader, const WireField& field, std::string_view key, std::string& name) const {
    std::string value = text(reader, field, key);
    if (!value.empty()) name = std::move(value);  // empty: the default, as the library takes it
  }

  void read_algorithm(std::int32_t type) {
    static constexpr std::string_view names[] = {"unigram", "bpe", "word", "char"};
    if (type < 1 || type > 4) fail("{}: trainer_spec.model_type is {}; expected 1 or 2", file_, type);
    model_.algorithm = static_cast<Model::Algorithm>(type);
    if (type > 2) {
      fail("{}: trainer_spec.model_type is {} ({}); expected 1 (unigram) or 2 (bpe)", file_, type,
           names[static_cast<std::size_t>(type) - 1]);
    }
  }

  static void read_normalization(WireReader reader, Model::Normalization& to) {
    for (WireField field; reader.next(field);) {
      switch (field.number) {
        case 2: to.charsmap = reader.bytes(field, "precompiled_charsmap"); break;
        case 3: to.add_dummy_prefix = reader.boolean(field, "add_dummy_prefix"); break;
        case 4: to.remove_extra_whitespaces = reader.boolean(field, "remove_extra_whitespaces"); break;
        case 5: to.escape_whitespaces = reader.boolean(field, "escape_whitespaces"); break;
        default: break;
      }
    }
  }

  const std::string& file_;
  Model model_;
};

}  // namespace

SentencePieceModel SentencePieceModel::parse(std::string_view bytes, const std::string& file) {
  if (is_tiktoken_file(bytes)) {
    fail(
        "{}: it is a tiktoken file (tokens in base64 with their ranks); expected a SentencePiece model, or "
        "tokenizer.json beside it",
        file);
  }
  SentencePieceModel model = Parser(file).read(bytes);
  if (model.pieces.empty()) fail("{}: it has no pieces; expected a SentencePiece model", file);
  return model;
}

}  // namespace heddle
