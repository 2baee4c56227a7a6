#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "data/token_cache.h"
#include "formats/file_reader.h"

namespace heddle {

/// Where the arrays of a table lie.
class TokenTable::Storage {
 public:
  enum class Part { ids, labels, rows };
  Storage();
  virtual ~Storage() = default;
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  /// Copies bytes of an array.
  virtual void read(Part part, std::int64_t offset, std::span<std::byte> target) const = 0;

  const std::uint64_t number;  // each has another
  std::int64_t num_ids = 0, num_labels = 0, num_rows = 0;
};

class TokenTable::ArrayStorage final : public TokenTable::Storage {
 public:
  void read(Part part, std::int64_t offset, std::span<std::byte> target) const override;

  std::vector<std::int32_t> ids, labels;
  std::vector<TokenRow> rows;
};

class TokenTable::FileStorage final : public TokenTable::Storage {
 public:
  explicit FileStorage(const std::filesystem::path& path) : file(path) {}
  void read(Part part, std::int64_t offset, std::span<std::byte> target) const override;

  FileReader file;
  std::array<std::int64_t, 3> begin{};  // of each array in the file
};

}  // namespace heddle
