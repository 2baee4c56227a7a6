#include "data/tokenizer/sentencepiece_pieces.h"

#include <algorithm>

#include "base/error.h"

namespace heddle {
namespace {

constexpr auto none = Vocabulary::none;

}  // namespace

SentencePieces::SentencePieces(const SentencePieceModel& model, const std::string& file)
    : byte_fallback_(model.byte_fallback) {
  byte_ids_.fill(none);
  std::array<std::string, 256> names;
  for (unsigned byte = 0; byte < names.size(); ++byte) names[byte] = fmt::format("<0x{:02X}>", byte);
  types_.reserve(model.pieces.size());
  scores_.reserve(model.pieces.size());
  for (const SentencePieceModel::Piece& piece : model.pieces) {
    const std::int32_t id = size();
    const auto where = [&] { return fmt::format("{}: pieces[{}] {}", file, id, Json(piece.text).dump()); };
    const bool is_textual =
        piece.type == Type::normal || piece.type == Type::user_defined || piece.type == Type::unused;
    Vocabulary& home = is_textual ? textual_ : reserved_;
    if (const std::int32_t twin = home.find(piece.text); twin != none) fail("{} is pieces[{}] too", where(), twin);
    home.add(piece.text, id);
    types_.push_back(piece.type);
    scores_.push_back(piece.score);
    if (piece.type == Type::user_defined) {
      user_defined_.add(piece.text, id);
      has_user_defined_ = true;
    }
    if (piece.type == Type::unknown) {
      if (unk_id_ != none) fail("{} is unknown, as pieces[{}] is; expected one unknown piece", where(), unk_id_);
      unk_id_ = id;
    }
    if (piece.type == Type::byte) {
      if (!byte_fallback_) fail("{} is a byte; expected none, as trainer_spec.byte_fallback is false", where());
      const auto* const name = std::find(names.begin(), names.end(), piece.text);
      if (name == names.end()) fail("{} is a byte; expected <0x00> to <0xFF>", where());
      byte_ids_[static_cast<std::size_t>(name - names.begin())] = id;
    }
  }
  if (unk_id_ == none) fail("{}: it has no piece of type unknown; expected one", file);
  if (byte_fallback_) {
    const auto* const missing = std::find(byte_ids_.begin(), byte_ids_.end(), none);
    if (missing != byte_ids_.end()) {
      fail("{}: trainer_spec.byte_fallback is true, but the byte {} is missing among the pieces", file,
           names[static_cast<std::size_t>(missing - byte_ids_.begin())]);
    }
  }
}

unsigned char SentencePieces::byte(std::int32_t id) const {
  const auto* const found = std::find(byte_ids_.begin(), byte_ids_.end(), id);
  return static_cast<unsigned char>(found - byte_ids_.begin());
}

std::int32_t SentencePieces::find(std::string_view text) const {
  const std::int32_t id = reserved_.find(text);
  return id == none ? textual_.find(text) : id;
}

std::size_t SentencePieces::match_user_defined(std::string_view text) const {
  std::size_t longest = 0;
  std::int32_t node = has_user_defined_ ? ByteTrie::root : ByteTrie::none;
  for (std::size_t at = 0; node != ByteTrie::none && at < text.size(); ++at) {
    node = user_defined_.step(node, text[at]);
    if (node != ByteTrie::none && user_defined_.value(node) != ByteTrie::none) longest = at + 1;
  }
  return longest;
}

void SentencePieces::append(std::string_view text, std::int32_t id, std::size_t start,
                            std::vector<std::int32_t>& ids) const {
  if (id == unk_id_ && byte_fallback_) {
    for (const char byte : text) ids.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
    return;
  }
  // Unknown pieces in a row are one.
  const bool goes_on = id == unk_id_ && ids.size() > start && ids.back() == unk_id_;
  if (!goes_on) ids.push_back(id);
}

}  // namespace heddle
