#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/tokenizer/json_entry.h"

namespace heddle {

/// `post_processor` of tokenizer.json: special tokens around the ids of one text. Immutable. (Those of pairs of texts
/// are not read.)
class PostProcessor {
 public:
  virtual ~PostProcessor() = default;
  virtual std::vector<std::int32_t> apply(std::vector<std::int32_t> ids, bool add_special_tokens) const = 0;
  /// All ids it may add, for checking.
  virtual std::vector<std::int32_t> special_ids() const = 0;

  virtual bool ends_with_template() const { return false; }

  /// Null for one that does not change ids. Throws Error for an unknown type or a wrong member.
  static std::unique_ptr<PostProcessor> read(const JsonEntry& entry);
};

}  // namespace heddle
