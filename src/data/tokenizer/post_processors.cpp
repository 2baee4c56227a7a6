#include "data/tokenizer/post_processors.h"

#include <optional>
#include <string>
#include <utility>

#include "base/error.h"

namespace heddle {
namespace {

using Ids = std::vector<std::int32_t>;

class Template final : public PostProcessor {
 public:
  explicit Template(const JsonEntry& entry) {
    const JsonEntry special_tokens = entry.at("special_tokens");
    for (const JsonEntry& piece : entry.at("single").elements()) {
      if (const auto sequence = piece.find("Sequence")) {
        static constexpr std::string_view names[] = {"A"};
        static_cast<void>(sequence->at("id").one_of(names));
        pieces_.emplace_back(std::nullopt);
        continue;
      }
      Ids ids;
      for (const JsonEntry& id : special_tokens.at(piece.at("SpecialToken").string("id")).at("ids").elements()) {
        ids.push_back(id.count());
      }
      pieces_.emplace_back(std::move(ids));
    }
  }

  Ids apply(Ids ids, bool add_special_tokens) const override {
    Ids out;
    for (const auto& piece : pieces_) {
      if (!piece) {
        out.insert(out.end(), ids.begin(), ids.end());
      } else if (add_special_tokens) {
        out.insert(out.end(), piece->begin(), piece->end());
      }
    }
    return out;
  }

  Ids special_ids() const override {
    Ids all;
    for (const auto& piece : pieces_) {
      if (piece) all.insert(all.end(), piece->begin(), piece->end());
    }
    return all;
  }

  bool ends_with_template() const override { return true; }

 private:
  std::vector<std::optional<Ids>> pieces_;  // nothing: the ids of the text
};

/// BertProcessing and RobertaProcessing: [CLS] text [SEP].
class Enclose final : public PostProcessor {
 public:
  explicit Enclose(const JsonEntry& entry) : first_(read_id(entry.at("cls"))), last_(read_id(entry.at("sep"))) {}
  Ids apply(Ids ids, bool add_special_tokens) const override {
    if (add_special_tokens) {
      ids.insert(ids.begin(), first_);
      ids.push_back(last_);
    }
    return ids;
  }
  Ids special_ids() const override { return {first_, last_}; }

 private:
  static std::int32_t read_id(const JsonEntry& entry) {
    const auto parts = entry.elements();
    if (parts.size() != 2) entry.refuse("[token, id]");
    static_cast<void>(parts[0].string());
    return parts[1].count();
  }
  std::int32_t first_, last_;
};

class Sequence final : public PostProcessor {
 public:
  explicit Sequence(const JsonEntry& entry) {
    for (const JsonEntry& part : entry.at("processors").elements()) {
      auto processor = PostProcessor::read(part);
      if (processor == nullptr) continue;
      // The reference would put the tokens of a later one around each token of the template too.
      if (has_template_)
        fail("{} adds special tokens after a TemplateProcessing; expected none after it", part.where());
      has_template_ = processor->ends_with_template();
      parts_.push_back(std::move(processor));
    }
  }
  Ids apply(Ids ids, bool add_special_tokens) const override {
    for (const auto& part : parts_) ids = part->apply(std::move(ids), add_special_tokens);
    return ids;
  }
  Ids special_ids() const override {
    Ids all;
    for (const auto& part : parts_) {
      const Ids ids = part->special_ids();
      all.insert(all.end(), ids.begin(), ids.end());
    }
    return all;
  }
  bool ends_with_template() const override { return has_template_; }

 private:
  std::vector<std::unique_ptr<PostProcessor>> parts_;
  bool has_template_ = false;
};

}  // namespace

std::unique_ptr<PostProcessor> PostProcessor::read(const JsonEntry& entry) {
  static constexpr std::string_view names[] = {"ByteLevel", "TemplateProcessing", "Sequence", "BertProcessing",
                                               "RobertaProcessing"};
  switch (entry.type(names)) {
    case 0: return nullptr;  // only trims offsets
    case 1: return std::make_unique<Template>(entry);
    case 2: return std::make_unique<Sequence>(entry);
    default: return std::make_unique<Enclose>(entry);
  }
}

}  // namespace heddle
