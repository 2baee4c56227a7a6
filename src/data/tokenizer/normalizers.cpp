#include "data/tokenizer/normalizers.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "data/tokenizer/byte_level.h"
#include "data/tokenizer/normalization.h"
#include "data/tokenizer/precompiled.h"

namespace heddle {
namespace {

class Sequence final : public Normalizer {
 public:
  explicit Sequence(const JsonEntry& entry) {
    for (const JsonEntry& part : entry.at("normalizers").elements()) parts_.push_back(read(part));
  }
  void apply(Piece& piece) const override {
    for (const auto& part : parts_) part->apply(piece);
  }
  bool leaves(std::string_view text) const override {
    return std::all_of(parts_.begin(), parts_.end(), [text](const auto& part) { return part->leaves(text); });
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> parts_;
};

class UnicodeForm final : public Normalizer {
 public:
  explicit UnicodeForm(unicode::Form form) : form_(form) {}
  void apply(Piece& piece) const override {
    if (leaves(piece.text)) return;
    std::string changed = unicode::normalize(piece.text, form_);
    const std::size_t first = changed.empty() ? 0 : static_cast<std::size_t>(unicode::decode(changed.data()).length);
    piece.rewrite(std::move(changed), piece.start_bytes > 0 ? first : 0);
  }
  bool leaves(std::string_view text) const override { return unicode::is_surely_normalized(text, form_); }

 private:
  unicode::Form form_;
};

class Lowercase final : public Normalizer {
 public:
  void apply(Piece& piece) const override {
    rewrite_characters(piece, [](char32_t c, std::string& out) { unicode::append_lowercase(out, c); });
  }
};

class Strip final : public Normalizer {
 public:
  explicit Strip(const JsonEntry& entry)
      : left_(entry.at("strip_left").boolean()), right_(entry.at("strip_right").boolean()) {}
  void apply(Piece& piece) const override {
    const unicode::ClassTable& table = unicode::classes();
    const std::string& text = piece.text;
    std::size_t begin = 0, end = text.size();
    while (left_ && begin < end) {
      const unicode::Character c = unicode::decode(text.data() + begin);
      if (!table.is(c.code, unicode::space)) break;
      begin += static_cast<std::size_t>(c.length);
    }
    while (right_ && end > begin) {
      const unicode::Character c = unicode::decode_before(text, end);
      if (!table.is(c.code, unicode::space)) break;
      end -= static_cast<std::size_t>(c.length);
    }
    piece.rewrite(text.substr(begin, end - begin), piece.start_bytes > begin ? piece.start_bytes - begin : 0);
  }

 private:
  bool left_, right_;
};

class StripAccents final : public Normalizer {
 public:
  void apply(Piece& piece) const override {
    const unicode::ClassTable& table = unicode::classes();
    rewrite_characters(piece, [&table](char32_t c, std::string& out) {
      if (!table.is(c, unicode::combining)) unicode::append(out, c);
    });
  }
};

class Replace final : public Normalizer {
 public:
  explicit Replace(const JsonEntry& entry)
      : pattern_(Pattern::read(entry.at("pattern"))), content_(entry.string("content")) {}
  void apply(Piece& piece) const override { replace_matches(piece, pattern_, content_); }

 private:
  Pattern pattern_;
  std::string content_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(const JsonEntry& entry) : prefix_(entry.string("prepend")) {}
  void apply(Piece& piece) const override { piece.prepend(prefix_); }

 private:
  std::string prefix_;
};

/// Cleans text as SentencePiece's `nmt` rules do.
class Nmt final : public Normalizer {
 public:
  void apply(Piece& piece) const override {
    rewrite_characters(piece, [](char32_t c, std::string& out) {
      if (is_dropped(c)) return;
      unicode::append(out, is_blank(c) ? U' ' : c);
    });
  }

 private:
  static bool is_dropped(char32_t c) {
    return (c >= 1 && c <= 8) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
  }
  static bool is_blank(char32_t c) {
    return c == 9 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
           c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
  }
};

class ByteLevel final : public Normalizer {
 public:
  void apply(Piece& piece) const override {
    const std::size_t start_bytes = byte_level::encode(piece.text.substr(0, piece.start_bytes)).size();
    piece.rewrite(byte_level::encode(piece.text), start_bytes);
  }
};

bool is_chinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

class Bert final : public Normalizer {
 public:
  explicit Bert(const JsonEntry& entry)
      : clean_text_(entry.at("clean_text").boolean()),
        handle_chinese_chars_(entry.at("handle_chinese_chars").boolean()),
        lowercase_(entry.at("lowercase").boolean()),
        strip_accents_(entry.boolean("strip_accents", lowercase_)) {}

  void apply(Piece& piece) const override {
    const unicode::ClassTable& table = unicode::classes();
    if (clean_text_) {
      rewrite_characters(piece, [&table](char32_t c, std::string& out) {
        if (c == 0 || c == 0xFFFD || table.is(c, unicode::control)) return;
        unicode::append(out, table.is(c, unicode::space) ? U' ' : c);
      });
    }
    if (handle_chinese_chars_) {
      rewrite_characters(piece, [](char32_t c, std::string& out) {
        if (is_chinese(c)) out += ' ';
        unicode::append(out, c);
        if (is_chinese(c)) out += ' ';
      });
    }
    if (strip_accents_) {
      UnicodeForm(unicode::Form::nfd).apply(piece);
      rewrite_characters(piece, [&table](char32_t c, std::string& out) {
        if (!table.is(c, unicode::nonspacing)) unicode::append(out, c);
      });
    }
    if (lowercase_) Lowercase().apply(piece);
  }

 private:
  bool clean_text_, handle_chinese_chars_, lowercase_, strip_accents_;
};

}  // namespace

void replace_matches(Piece& piece, const Pattern& pattern, std::string_view content) {
  std::string out;
  out.reserve(piece.text.size());
  std::size_t start_bytes = 0;
  for (const Stretch& stretch : pattern.find(piece.text)) {
    if (stretch.is_match) {
      out += content;
      if (stretch.end == 0 || stretch.end - 1 < piece.start_bytes) start_bytes = out.size();
    } else {
      out.append(piece.text, stretch.begin, stretch.end - stretch.begin);
      if (stretch.begin < piece.start_bytes) {
        start_bytes = out.size() - (stretch.end - std::min(stretch.end, piece.start_bytes));
      }
    }
  }
  piece.rewrite(std::move(out), start_bytes);
}

std::unique_ptr<Normalizer> Normalizer::read(const JsonEntry& entry) {
  static constexpr std::string_view names[] = {"NFC",   "NFD",       "NFKC",           "NFKD",       "Sequence",
                                               "Strip", "Lowercase", "StripAccents",   "Replace",    "Prepend",
                                               "Nmt",   "ByteLevel", "BertNormalizer", "Precompiled"};
  switch (entry.type(names)) {
    case 0: return std::make_unique<UnicodeForm>(unicode::Form::nfc);
    case 1: return std::make_unique<UnicodeForm>(unicode::Form::nfd);
    case 2: return std::make_unique<UnicodeForm>(unicode::Form::nfkc);
    case 3: return std::make_unique<UnicodeForm>(unicode::Form::nfkd);
    case 4: return std::make_unique<Sequence>(entry);
    case 5: return std::make_unique<Strip>(entry);
    case 6: return std::make_unique<Lowercase>();
    case 7: return std::make_unique<StripAccents>();
    case 8: return std::make_unique<Replace>(entry);
    case 9: return std::make_unique<Prepend>(entry);
    case 10: return std::make_unique<Nmt>();
    case 11: return std::make_unique<ByteLevel>();
    case 12: return std::make_unique<Bert>(entry);
    default: return read_precompiled_normalizer(entry);
  }
}

}  // namespace heddle
