#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/token_cache.h"
#include "data/token_file.h"
#include "data/token_storage.h"
#include "formats/file_reader.h"

namespace heddle {
namespace {

using namespace token_file;

/// Rows read at a time: neighbours are mostly wanted one after another.
constexpr std::int64_t kRowsOfBlock = 64;

TableNotes read_notes(std::string_view text) {
  const auto in = nlohmann::json::parse(text);
  TableNotes notes;
  in.at("rows_without_targets").get_to(notes.rows_without_targets);
  in.at("ignored_fields").get_to(notes.ignored_fields);
  in.at("formats").get_to(notes.formats);
  in.at("records").get_to(notes.records);
  for (const auto& row : in.at("bad_rows")) notes.bad_rows.push_back({row.at(0), row.at(1)});
  return notes;
}

/// Rows read last by this thread. A table is known by its number: another may lie at its address later.
struct RowBlock {
  std::uint64_t table = 0;
  std::int64_t first = 0;
  std::vector<TokenRow> rows;
};

std::uint64_t next_table_number() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

}  // namespace

TokenTable::Storage::Storage() : number(next_table_number()) {}

void TokenTable::ArrayStorage::read(Part part, std::int64_t offset, std::span<std::byte> target) const {
  const auto copy = [&](const auto& array) {
    const auto bytes = std::as_bytes(std::span(array)).subspan(static_cast<std::size_t>(offset), target.size());
    std::copy(bytes.begin(), bytes.end(), target.begin());
  };
  part == Storage::Part::ids ? copy(ids) : part == Storage::Part::labels ? copy(labels) : copy(rows);
}

void TokenTable::FileStorage::read(Part part, std::int64_t offset, std::span<std::byte> target) const {
  file.read(static_cast<std::uint64_t>(begin[static_cast<std::size_t>(part)] + offset), target);
}

TokenTable::TokenTable(std::shared_ptr<const Storage> storage)
    : storage_(std::move(storage)), num_rows_(storage_->num_rows) {}

TokenRow TokenTable::row(std::int64_t index) const {
  HEDDLE_CHECK(index >= 0 && index < num_rows_);
  thread_local RowBlock block;
  const std::int64_t first = index / kRowsOfBlock * kRowsOfBlock;
  if (block.table != storage_->number || block.first != first) {
    block.table = 0;  // in case that reading fails
    block.rows.resize(static_cast<std::size_t>(std::min(kRowsOfBlock, num_rows_ - first)));
    storage_->read(Storage::Part::rows, first * static_cast<std::int64_t>(sizeof(TokenRow)),
                   std::as_writable_bytes(std::span(block.rows)));
    block.table = storage_->number;
    block.first = first;
  }
  return block.rows[static_cast<std::size_t>(index - first)];
}

std::int64_t TokenTable::find_stream_row(std::int64_t position) const {
  const auto mark = std::upper_bound(stream_marks_.begin(), stream_marks_.end(), position);
  HEDDLE_CHECK(mark != stream_marks_.begin());
  std::int64_t index = (mark - stream_marks_.begin() - 1) * kRowsOfBlock;
  const std::int64_t end = std::min(index + kRowsOfBlock, num_rows_);
  while (index + 1 < end && row(index + 1).stream_start <= position) ++index;
  return index;
}

void TokenTable::read_ids(const TokenRow& row, std::int64_t first, std::span<std::int32_t> target) const {
  HEDDLE_CHECK(first >= 0 && static_cast<std::int64_t>(target.size()) <= row.length - first);
  storage_->read(Storage::Part::ids, (row.offset + first) * 4, std::as_writable_bytes(target));
}

void TokenTable::read_labels(const TokenRow& row, std::int64_t first, std::span<std::int32_t> target) const {
  if (row.label_offset < 0) return read_ids(row, first, target);
  HEDDLE_CHECK(first >= 0 && static_cast<std::int64_t>(target.size()) <= row.length - first);
  storage_->read(Storage::Part::labels, (row.label_offset + first) * 4, std::as_writable_bytes(target));
}

/// Whether every row lies within the arrays: the promise that training reads rely on. Sets what is known of the stream.
bool TokenTable::check_rows() {
  const auto within = [](std::int64_t offset, std::int64_t length, std::int64_t size) {
    return offset >= 0 && length <= size && offset <= size - length;
  };
  stream_length_ = 0;
  for (std::int64_t i = 0; i < num_rows_; ++i) {
    const TokenRow at = row(i);
    const bool is_rejected = at.kind == RowKind::rejected;
    if (is_rejected != (i > 0 && row(i - 1).kind == RowKind::chosen)) return false;
    if (at.length < 2 || !within(at.offset, at.length, storage_->num_ids) || at.stream_start != stream_length_)
      return false;
    if (at.label_offset != -1 && !within(at.label_offset, at.length, storage_->num_labels)) return false;
    if (i % kRowsOfBlock == 0) stream_marks_.push_back(stream_length_);
    if (at.kind == RowKind::text) stream_length_ += at.length - 1;
  }
  return num_rows_ == 0 || row(num_rows_ - 1).kind != RowKind::chosen;
}

std::optional<TokenTable> TokenTable::open(const std::filesystem::path& path, std::string_view key,
                                           std::string& damage) try {
  damage.clear();
  std::error_code code;
  if (!std::filesystem::exists(path, code)) return std::nullopt;
  const auto damaged = [&](std::string what) {
    damage = std::move(what);
    return std::nullopt;
  };
  auto storage = std::make_shared<FileStorage>(path);
  const FileReader& file = storage->file;
  Header header;
  if (file.size() < sizeof(header)) return damaged("it ends within its header");
  file.read(0, std::as_writable_bytes(std::span(&header, 1)));
  if (header.magic != kMagic) return damaged("it is no token cache of this version");
  if (header.checksum != header_checksum(header)) return damaged("the checksum of its header differs");
  if (std::string_view(header.key.data(), header.key.size()) != key) return damaged("it has another key");
  const HashState state = new_hash();
  file.read_from(sizeof(header),
                 [&](std::string_view bytes) { XXH3_128bits_update(state.get(), bytes.data(), bytes.size()); });
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  if (hash.low64 != header.payload_low || hash.high64 != header.payload_high) return damaged("its checksum differs");

  // The checksums held, so the counts are those that were written; they are checked to match the size all the same.
  const auto size = static_cast<std::int64_t>(file.size() - sizeof(header));
  if (std::min({header.num_ids, header.num_labels, header.num_rows, header.notes_bytes}) < 0 ||
      std::max({header.num_ids, header.num_labels, header.num_rows, header.notes_bytes}) > size) {
    return damaged("its counts do not match its size");
  }
  const std::int64_t rows_at = ((header.num_ids + header.num_labels) * 4 + 7) / 8 * 8;
  const std::int64_t notes_at = rows_at + header.num_rows * static_cast<std::int64_t>(sizeof(TokenRow));
  if (notes_at + header.notes_bytes != size) return damaged("its counts do not match its size");

  constexpr auto kStart = static_cast<std::int64_t>(sizeof(Header));
  storage->begin = {kStart, kStart + header.num_ids * 4, kStart + rows_at};
  storage->num_ids = header.num_ids;
  storage->num_labels = header.num_labels;
  storage->num_rows = header.num_rows;
  std::string notes(static_cast<std::size_t>(header.notes_bytes), '\0');
  file.read(static_cast<std::uint64_t>(kStart + notes_at), std::span<char>(notes));
  TokenTable table(std::move(storage));
  if (!table.check_rows() || table.stream_length_ != header.stream_length) return damaged("its rows leave its ids");
  table.notes_ = read_notes(notes);
  return table;
} catch (const nlohmann::json::exception&) {
  damage = "its notes cannot be read";
  return std::nullopt;
} catch (const Error& error) {
  damage = error.what();
  return std::nullopt;
}

}  // namespace heddle
