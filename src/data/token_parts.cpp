#include "data/token_parts.h"

#include <chrono>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSuffix = ".part";

}  // namespace

TokenParts::TokenParts(fs::path path, std::string key, std::int64_t part_bytes)
    : path_(std::move(path)), key_(std::move(key)), part_bytes_(part_bytes) {}

fs::path TokenParts::path_of(std::int64_t part) const {
  return path_.parent_path() / fmt::format("{}-{:05}{}", path_.stem().string(), part, kSuffix);
}

std::string TokenParts::key_of(std::int64_t part) const {
  CacheKey key;
  key.add(key_);
  key.add(part_bytes_);
  key.add(part);
  return key.digest();
}

std::int64_t TokenParts::take_over(TokenTableWriter& table) {
  std::string damage;
  for (; const auto part = TokenTable::open(path_of(parts_), key_of(parts_), damage); ++parts_)
    table.append_table(*part);
  return table.notes().records;
}

TokenTableWriter& TokenParts::under_way() {
  if (!writer_) writer_.emplace(path_of(parts_), key_of(parts_));
  return *writer_;
}

void TokenParts::add_text(std::int64_t bytes) {
  bytes_ += bytes;
  if (bytes_ < part_bytes_) return;
  bytes_ = 0;
  writer_->finish_part();
  writer_.reset();
  ++parts_;
}

void TokenParts::remove() {
  std::error_code code;
  for (; parts_ > 0; --parts_) fs::remove(path_of(parts_ - 1), code);
}

void TokenParts::remove_old(const fs::path& folder) {
  std::error_code code;
  const auto oldest = fs::file_time_type::clock::now() - std::chrono::hours(24 * 7);
  for (fs::directory_iterator entry(folder, code), end; !code && entry != end; entry.increment(code)) {
    std::error_code status;
    if (entry->path().extension() == kSuffix && entry->last_write_time(status) < oldest && !status)
      fs::remove(entry->path(), status);
  }
}

}  // namespace heddle
