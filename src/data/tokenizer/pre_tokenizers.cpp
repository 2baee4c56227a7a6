#include "data/tokenizer/pre_tokenizers.h"

#include "data/tokenizer/byte_level.h"
#include "data/tokenizer/metaspace.h"
#include "data/tokenizer/normalizers.h"
#include "data/tokenizer/unicode.h"
#include "data/tokenizer/unicode_scripts.h"

namespace heddle {

Metaspace::Metaspace(const JsonEntry& entry) : prepend(Prepend::always), split(entry.boolean("split", true)) {
  static constexpr std::string_view names[] = {"first", "never", "always"};
  unicode::append(replacement, entry.at("replacement").character());
  if (const auto scheme = entry.find("prepend_scheme")) prepend = static_cast<Prepend>(scheme->one_of(names));
  if (!entry.boolean("add_prefix_space", true)) {  // the older spelling
    if (prepend != Prepend::never && entry.find("prepend_scheme")) {
      entry.at("prepend_scheme").refuse("never, as add_prefix_space is false");
    }
    prepend = Prepend::never;
  }
}

namespace {

std::vector<Stretch> find_words(std::string_view text, const WordScanner& scanner) {
  std::vector<Stretch> words;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = scanner.end_of_word(text, begin);
    words.push_back({begin, end, true});
    begin = end;
  }
  return words;
}

class Sequence final : public PreTokenizer {
 public:
  explicit Sequence(const JsonEntry& entry) {
    for (const JsonEntry& part : entry.at("pretokenizers").elements()) parts_.push_back(read(part));
  }
  void apply(std::vector<Piece>& pieces) const override {
    for (const auto& part : parts_) part->apply(pieces);
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> parts_;
};

class ByteLevel final : public PreTokenizer {
 public:
  explicit ByteLevel(const JsonEntry& entry)
      : add_prefix_space_(entry.at("add_prefix_space").boolean()), use_regex_(entry.boolean("use_regex", true)) {}

  void apply(std::vector<Piece>& pieces) const override {
    split_pieces(pieces, [this](Piece& piece) -> std::vector<Stretch> {
      if (add_prefix_space_ && !piece.text.starts_with(' ')) piece.prepend(" ");
      if (use_regex_) return find_words(piece.text, scanner_);
      return {{0, piece.text.size(), false}};
    });
    for (Piece& piece : pieces) {
      if (piece.id != Piece::unknown) continue;
      const std::size_t start_bytes = byte_level::encode(piece.text.substr(0, piece.start_bytes)).size();
      piece.rewrite(byte_level::encode(piece.text), start_bytes);
    }
  }

 private:
  bool add_prefix_space_, use_regex_;
  WordScanner scanner_{WordRule::gpt2};
};

class Split final : public PreTokenizer {
 public:
  explicit Split(const JsonEntry& entry)
      : pattern_(Pattern::read(entry.at("pattern"))),
        behavior_(read_split_behavior(entry.at("behavior"))),
        invert_(entry.at("invert").boolean()) {
    const auto rule = pattern_.is_regex() ? find_word_rule(pattern_.text()) : std::nullopt;
    if (rule) scanner_.emplace(*rule);
  }

  void apply(std::vector<Piece>& pieces) const override {
    split_pieces(pieces, [this](const Piece& piece) {
      std::vector<Stretch> stretches = scanner_ ? find_words(piece.text, *scanner_) : pattern_.find(piece.text);
      if (invert_) {
        for (Stretch& stretch : stretches) stretch.is_match = !stretch.is_match;
      }
      return apply_behavior(std::move(stretches), behavior_);
    });
  }

 private:
  Pattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
  std::optional<WordScanner> scanner_;
};

/// Splits at characters of a class.
class SplitAt : public PreTokenizer {
 public:
  SplitAt(unicode::Class which, SplitBehavior behavior) : class_(which), behavior_(behavior) {}
  void apply(std::vector<Piece>& pieces) const override {
    split_pieces(pieces, [this, &table = unicode::classes()](const Piece& piece) {
      return apply_behavior(find_characters(piece.text, [&](char32_t c) { return table.is(c, class_); }), behavior_);
    });
  }

 private:
  unicode::Class class_;
  SplitBehavior behavior_;
};

class CharDelimiterSplit final : public PreTokenizer {
 public:
  explicit CharDelimiterSplit(const JsonEntry& entry) : delimiter_(entry.at("delimiter").character()) {}
  void apply(std::vector<Piece>& pieces) const override {
    split_pieces(pieces, [this](const Piece& piece) {
      return apply_behavior(find_characters(piece.text, [this](char32_t c) { return c == delimiter_; }),
                            SplitBehavior::removed);
    });
  }

 private:
  char32_t delimiter_;
};

class Bert final : public PreTokenizer {
 public:
  void apply(std::vector<Piece>& pieces) const override {
    SplitAt(unicode::space, SplitBehavior::removed).apply(pieces);
    SplitAt(unicode::punctuation, SplitBehavior::isolated).apply(pieces);
  }
};

/// Runs of word characters, and runs of what is neither word nor white space.
class Whitespace final : public PreTokenizer {
 public:
  void apply(std::vector<Piece>& pieces) const override {
    split_pieces(pieces, [&table = unicode::classes()](const Piece& piece) {
      std::vector<Stretch> words;
      int last_kind = 0;
      for (std::size_t at = 0; at < piece.text.size();) {
        const unicode::Character c = unicode::decode(piece.text.data() + at);
        const std::size_t end = at + static_cast<std::size_t>(c.length);
        const int kind = table.is(c.code, unicode::word) ? 1 : table.is(c.code, unicode::space) ? 0 : 2;
        if (kind != 0 && kind == last_kind) {
          words.back().end = end;
        } else if (kind != 0) {
          words.push_back({at, end, true});
        }
        last_kind = kind;
        at = end;
      }
      return words;
    });
  }
};

class MetaspaceSplit final : public PreTokenizer {
 public:
  explicit MetaspaceSplit(const JsonEntry& entry)
      : options_(entry), mark_(unicode::decode(options_.replacement.data()).code) {}

  void apply(std::vector<Piece>& pieces) const override {
    split_pieces(pieces, [this](Piece& piece) -> std::vector<Stretch> {
      replace_matches(piece, space_, options_.replacement);
      const bool wants_prefix = options_.prepend == Metaspace::Prepend::always ||
                                (options_.prepend == Metaspace::Prepend::first && piece.at_start);
      if (wants_prefix && !piece.text.starts_with(options_.replacement)) piece.prepend(options_.replacement);
      if (!options_.split) return {{0, piece.text.size(), false}};
      return apply_behavior(find_characters(piece.text, [this](char32_t c) { return c == mark_; }),
                            SplitBehavior::merged_with_next);
    });
  }

 private:
  Metaspace options_;
  char32_t mark_;
  Pattern space_ = Pattern::literal(" ");
};

/// Parts where the script changes. Characters without one stay with what is before them; at the beginning they vanish.
class UnicodeScripts final : public PreTokenizer {
 public:
  void apply(std::vector<Piece>& pieces) const override {
    split_pieces(pieces, [](const Piece& piece) {
      std::vector<Stretch> parts;
      int last = 0;
      for (std::size_t at = 0; at < piece.text.size();) {
        const unicode::Character c = unicode::decode(piece.text.data() + at);
        const int script = unicode::script(c.code);
        if (script != 0 && script != last) parts.push_back({at, at, false});
        if (script != 0) last = script;
        at += static_cast<std::size_t>(c.length);
        if (!parts.empty()) parts.back().end = at;
      }
      return parts;
    });
  }
};

class FixedLength final : public PreTokenizer {
 public:
  explicit FixedLength(const JsonEntry& entry) {
    if (const auto length = entry.find("length")) length_ = static_cast<std::size_t>(length->count());
    if (length_ == 0) entry.at("length").refuse("at least 1");
  }
  void apply(std::vector<Piece>& pieces) const override {
    split_pieces(pieces, [this](const Piece& piece) {
      std::vector<Stretch> parts;
      std::size_t characters = 0;
      for (std::size_t at = 0; at < piece.text.size();) {
        if (characters++ % length_ == 0) parts.push_back({at, at, false});
        at += static_cast<std::size_t>(unicode::decode(piece.text.data() + at).length);
        parts.back().end = at;
      }
      return parts;
    });
  }

 private:
  std::size_t length_ = 5;
};

std::unique_ptr<PreTokenizer> read_digits(const JsonEntry& entry) {
  const bool alone = entry.at("individual_digits").boolean();
  return std::make_unique<SplitAt>(unicode::numeric, alone ? SplitBehavior::isolated : SplitBehavior::contiguous);
}

std::unique_ptr<PreTokenizer> read_punctuation(const JsonEntry& entry) {
  const auto behavior = entry.find("behavior");
  return std::make_unique<SplitAt>(unicode::punctuation,
                                   behavior ? read_split_behavior(*behavior) : SplitBehavior::isolated);
}

bool is_of_type(const JsonEntry& entry, std::string_view type) { return entry.string("type") == type; }

std::optional<WordRule> find_split_rule(const JsonEntry& entry) {
  const auto pattern = entry.at("pattern").optional_string("Regex");
  const auto rule = pattern ? find_word_rule(*pattern) : std::nullopt;
  const std::string behavior = entry.string("behavior");
  const bool keeps_all = behavior == "Isolated" || (behavior == "Removed" && entry.at("invert").boolean());
  return keeps_all ? rule : std::nullopt;
}

}  // namespace

std::unique_ptr<PreTokenizer> PreTokenizer::read(const JsonEntry& entry) {
  static constexpr std::string_view names[] = {
      "ByteLevel", "Split",     "Sequence",         "Whitespace",         "WhitespaceSplit", "Punctuation",
      "Digits",    "Metaspace", "BertPreTokenizer", "CharDelimiterSplit", "FixedLength",     "UnicodeScripts"};
  switch (entry.type(names)) {
    case 0: return std::make_unique<ByteLevel>(entry);
    case 1: return std::make_unique<Split>(entry);
    case 2: return std::make_unique<Sequence>(entry);
    case 3: return std::make_unique<Whitespace>();
    case 4: return std::make_unique<SplitAt>(unicode::space, SplitBehavior::removed);
    case 5: return read_punctuation(entry);
    case 6: return read_digits(entry);
    case 7: return std::make_unique<MetaspaceSplit>(entry);
    case 8: return std::make_unique<Bert>();
    case 9: return std::make_unique<CharDelimiterSplit>(entry);
    case 10: return std::make_unique<FixedLength>(entry);
    default: return std::make_unique<UnicodeScripts>();
  }
}

std::optional<ByteLevelWords> find_byte_level_words(const JsonEntry& entry) {
  if (is_of_type(entry, "ByteLevel")) {
    if (!entry.boolean("use_regex", true)) return std::nullopt;
    return ByteLevelWords{WordRule::gpt2, entry.at("add_prefix_space").boolean(), false};
  }
  if (!is_of_type(entry, "Sequence")) return std::nullopt;
  const std::vector<JsonEntry> parts = entry.at("pretokenizers").elements();
  if (parts.size() != 2 || !is_of_type(parts[1], "ByteLevel") || parts[1].at("add_prefix_space").boolean()) {
    return std::nullopt;
  }
  const bool use_regex = parts[1].boolean("use_regex", true);
  if (is_of_type(parts[0], "Split") && !use_regex) {
    const auto rule = find_split_rule(parts[0]);
    if (rule) return ByteLevelWords{*rule, false, false};
  }
  if (is_of_type(parts[0], "Digits") && use_regex && parts[0].at("individual_digits").boolean()) {
    return ByteLevelWords{WordRule::gpt2, false, true};
  }
  return std::nullopt;
}

}  // namespace heddle
