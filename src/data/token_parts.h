#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "data/token_cache.h"

namespace heddle {

/// What a run that ended too early had tokenized of a data file: tables of its first records, one behind another,
/// beside the cache file that they are to become. Rows of the part under way are lost.
class TokenParts {
 public:
  /// Parts of the cache file `path` of that key, each of some `part_bytes` of text.
  TokenParts(std::filesystem::path path, std::string key, std::int64_t part_bytes);

  /// Appends the parts that are there, whole, to a table that is empty yet; how many records they hold. Later parts are
  /// the next ones.
  std::int64_t take_over(TokenTableWriter& table);
  /// The part under way; what is appended to the table goes here too. Throws CacheError, as does the next.
  TokenTableWriter& under_way();
  /// So many bytes of text are in it, whole records: once there are enough, it is written.
  void add_text(std::int64_t bytes);
  /// The table is whole: they are of no use any more.
  void remove();

  /// Removes parts that nobody came back for in a week.
  static void remove_old(const std::filesystem::path& folder);

 private:
  std::filesystem::path path_of(std::int64_t part) const;
  std::string key_of(std::int64_t part) const;

  std::filesystem::path path_;
  std::string key_;
  std::int64_t part_bytes_, parts_ = 0, bytes_ = 0;
  std::optional<TokenTableWriter> writer_;
};

}  // namespace heddle
