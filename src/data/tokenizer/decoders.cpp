#include "data/tokenizer/decoders.h"

#include <algorithm>
#include <utility>

#include "data/tokenizer/byte_level.h"
#include "data/tokenizer/metaspace.h"
#include "data/tokenizer/pattern.h"
#include "data/tokenizer/replace.h"
#include "data/tokenizer/unicode.h"

namespace heddle {
namespace {

using Tokens = std::vector<std::string>;

std::string join(const Tokens& tokens) {
  std::size_t size = 0;
  for (const std::string& token : tokens) size += token.size();
  std::string text;
  text.reserve(size);
  for (const std::string& token : tokens) text += token;
  return text;
}

/// Joins what English tokenization parts.
std::string clean_up(std::string text) {
  static constexpr std::pair<std::string_view, std::string_view> rules[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [what, by] : rules) text = replace_all(text, what, by);
  return text;
}

class Sequence final : public Decoder {
 public:
  explicit Sequence(const JsonEntry& entry) {
    for (const JsonEntry& part : entry.at("decoders").elements()) parts_.push_back(read(part));
  }
  void apply(Tokens& tokens) const override {
    for (const auto& part : parts_) part->apply(tokens);
  }

 private:
  std::vector<std::unique_ptr<Decoder>> parts_;
};

class ByteLevel final : public Decoder {
 public:
  void apply(Tokens& tokens) const override {
    for (std::string& token : tokens) {
      if (auto bytes = byte_level::decode(token)) token = std::move(*bytes);
    }
    tokens = {unicode::to_valid(join(tokens))};
  }
};

class Replace final : public Decoder {
 public:
  explicit Replace(const JsonEntry& entry)
      : pattern_(Pattern::read(entry.at("pattern"))), content_(entry.string("content")) {}
  void apply(Tokens& tokens) const override {
    for (std::string& token : tokens) {
      std::string out;
      for (const Stretch& stretch : pattern_.find(token)) {
        out += stretch.is_match ? std::string_view(content_)
                                : std::string_view(token).substr(stretch.begin, stretch.end - stretch.begin);
      }
      token = std::move(out);
    }
  }

 private:
  Pattern pattern_;
  std::string content_;
};

/// Runs of tokens <0xNN> become text; each byte of a run that is no UTF-8 becomes U+FFFD.
class ByteFallback final : public Decoder {
 public:
  void apply(Tokens& tokens) const override {
    Tokens out;
    std::string bytes;
    const auto flush = [&] {
      if (unicode::find_invalid(bytes) == std::string::npos) {
        if (!bytes.empty()) out.push_back(bytes);
      } else {
        out.insert(out.end(), bytes.size(), "\xEF\xBF\xBD");
      }
      bytes.clear();
    };
    for (std::string& token : tokens) {
      const int byte = byte_of(token);
      if (byte >= 0) {
        bytes.push_back(static_cast<char>(byte));
        continue;
      }
      flush();
      out.push_back(std::move(token));
    }
    flush();
    tokens = std::move(out);
  }

 private:
  static int digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  }
  static int byte_of(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return -1;
    if (token[3] == '+') return digit(token[4]);  // Rust's from_str_radix takes a sign
    return digit(token[3]) < 0 || digit(token[4]) < 0 ? -1 : digit(token[3]) * 16 + digit(token[4]);
  }
};

class Fuse final : public Decoder {
 public:
  void apply(Tokens& tokens) const override { tokens = {join(tokens)}; }
};

/// Cuts up to `start` and `stop` of one character off the ends of each token.
class Strip final : public Decoder {
 public:
  explicit Strip(const JsonEntry& entry) : start_(entry.at("start").count()), stop_(entry.at("stop").count()) {
    unicode::append(content_, entry.at("content").character());
  }
  void apply(Tokens& tokens) const override {
    for (std::string& token : tokens) {
      std::string_view rest = token;
      for (std::int32_t i = 0; i < start_ && rest.starts_with(content_); ++i) rest.remove_prefix(content_.size());
      for (std::int32_t i = 0; i < stop_ && rest.ends_with(content_); ++i) rest.remove_suffix(content_.size());
      token = std::string(rest);
    }
  }

 private:
  std::string content_;
  std::int32_t start_, stop_;
};

class MetaspaceDecoder final : public Decoder {
 public:
  explicit MetaspaceDecoder(const JsonEntry& entry) : options_(entry) {}
  void apply(Tokens& tokens) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const bool drops = i == 0 && options_.prepend != Metaspace::Prepend::never;
      tokens[i] = replace_all(tokens[i], options_.replacement, drops ? "" : " ");
    }
  }

 private:
  Metaspace options_;
};

class WordPiece final : public Decoder {
 public:
  explicit WordPiece(const JsonEntry& entry)
      : prefix_(entry.string("prefix")), cleanup_(entry.at("cleanup").boolean()) {}
  void apply(Tokens& tokens) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      std::string& token = tokens[i];
      if (i > 0 && token.starts_with(prefix_)) {
        token.erase(0, prefix_.size());
      } else if (i > 0) {
        token.insert(0, 1, ' ');
      }
      if (cleanup_) token = clean_up(std::move(token));
    }
  }

 private:
  std::string prefix_;
  bool cleanup_;
};

class BpeSuffix final : public Decoder {
 public:
  explicit BpeSuffix(const JsonEntry& entry) : suffix_(entry.string("suffix")) {}
  void apply(Tokens& tokens) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = replace_all(tokens[i], suffix_, i + 1 == tokens.size() ? "" : " ");
    }
  }

 private:
  std::string suffix_;
};

class Ctc final : public Decoder {
 public:
  explicit Ctc(const JsonEntry& entry)
      : pad_(entry.string("pad_token")),
        delimiter_(entry.string("word_delimiter_token")),
        cleanup_(entry.at("cleanup").boolean()) {}
  void apply(Tokens& tokens) const override {
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    for (std::string& token : tokens) {
      token = replace_all(token, pad_, "");
      if (cleanup_) token = replace_all(clean_up(std::move(token)), delimiter_, " ");
    }
    std::erase(tokens, "");
  }

 private:
  std::string pad_, delimiter_;
  bool cleanup_;
};

}  // namespace

std::unique_ptr<Decoder> Decoder::read(const JsonEntry& entry) {
  static constexpr std::string_view names[] = {"ByteLevel", "Sequence",  "Replace",   "ByteFallback", "Fuse",
                                               "Strip",     "Metaspace", "WordPiece", "BPEDecoder",   "CTC"};
  switch (entry.type(names)) {
    case 0: return std::make_unique<ByteLevel>();
    case 1: return std::make_unique<Sequence>(entry);
    case 2: return std::make_unique<Replace>(entry);
    case 3: return std::make_unique<ByteFallback>();
    case 4: return std::make_unique<Fuse>();
    case 5: return std::make_unique<Strip>(entry);
    case 6: return std::make_unique<MetaspaceDecoder>(entry);
    case 7: return std::make_unique<WordPiece>(entry);
    case 8: return std::make_unique<BpeSuffix>(entry);
    default: return std::make_unique<Ctc>(entry);
  }
}

}  // namespace heddle
