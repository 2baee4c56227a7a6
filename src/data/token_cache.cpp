#include "data/token_cache.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/token_file.h"
#include "data/token_storage.h"
#include "formats/aside_file.h"
#include "formats/open_file.h"

namespace heddle {
namespace {

using namespace token_file;

constexpr std::size_t kBlock = std::size_t{1} << 20;

std::string write_notes(const TableNotes& notes) {
  nlohmann::json out = {{"bad_rows", nlohmann::json::array()},
                        {"rows_without_targets", notes.rows_without_targets},
                        {"ignored_fields", notes.ignored_fields},
                        {"formats", notes.formats},
                        {"records", notes.records}};
  for (const auto& [line, reason] : notes.bad_rows) out["bad_rows"].push_back({line, reason});
  return out.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

/// Runs what touches the disk; that it failed is then said as CacheError.
template <typename Function>
auto on_disk(Function&& function) {
  try {
    return function();
  } catch (const Error& error) {
    throw CacheError(error.what());
  }
}

/// Bytes put aside on disk until they are read back. The file has no name, so that nothing of it outlives the process.
class ScratchFile {
 public:
  explicit ScratchFile(const std::filesystem::path& folder) : file_(name_in(folder), O_RDWR | O_CREAT | O_EXCL) {
    ::unlink(file_.path().c_str());
  }
  void append(std::span<const std::byte> bytes) {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    if (buffer_.size() >= kBlock) flush();
  }
  /// Everything that was appended, block by block.
  template <typename Function>
  void read_back(Function&& use) {
    flush();
    buffer_.resize(kBlock);
    for (std::uint64_t at = 0; at < size_;) {
      const std::size_t count = file_.read_some(at, buffer_);
      if (count == 0) fail("{}: has lost bytes that were written to it", file_.path());
      use(std::span<const std::byte>(buffer_).first(count));
      at += count;
    }
  }

 private:
  /// One that remove_abandoned() knows, in case of a kill before it is gone.
  static std::string name_in(const std::filesystem::path& folder) {
    static std::atomic<unsigned> count{0};
    return fmt::format("{}/scratch.{}-{}.partial", folder.string(), ::getpid(), count++);
  }
  void flush() {
    file_.write_at(size_, buffer_);
    size_ += buffer_.size();
    buffer_.clear();
  }
  OpenFile file_;
  std::uint64_t size_ = 0;
  std::vector<std::byte> buffer_;
};

}  // namespace

void TableNotes::note_ignored(const std::vector<std::string>& fields) {
  constexpr std::size_t kFieldsNamed = 8;
  for (const auto& field : fields) {
    if (ignored_fields.size() == kFieldsNamed) return;
    if (std::find(ignored_fields.begin(), ignored_fields.end(), field) == ignored_fields.end())
      ignored_fields.push_back(field);
  }
}

void TableNotes::append(const TableNotes& behind) {
  bad_rows.insert(bad_rows.end(), behind.bad_rows.begin(), behind.bad_rows.end());
  rows_without_targets.insert(rows_without_targets.end(), behind.rows_without_targets.begin(),
                              behind.rows_without_targets.end());
  note_ignored(behind.ignored_fields);
  for (const auto& [format, rows] : behind.formats) formats[format] += rows;
  records += behind.records;
}

/// Where rows go: arrays in memory, or a file to be and two beside it for what comes after the ids.
struct TokenTableWriter::Sink {
  struct Files {
    Files(const std::filesystem::path& target, std::string_view key_digits)
        : path(target),
          key(key_digits),
          table(target, AsideFile::Writers::shared),
          labels(target.parent_path()),
          rows(target.parent_path()) {
      table.append(as_bytes(&header, sizeof(header)));  // holds the place
    }
    void put(std::span<const std::byte> bytes) {
      XXH3_128bits_update(hash.get(), bytes.data(), bytes.size());
      buffer.insert(buffer.end(), bytes.begin(), bytes.end());
      if (buffer.size() >= kBlock) flush();
    }
    void flush() {
      table.append(buffer);
      buffer.clear();
    }
    std::filesystem::path path;
    std::string key;
    Header header;
    HashState hash = new_hash();
    AsideFile table;
    ScratchFile labels, rows;
    std::vector<std::byte> buffer;
  };
  std::shared_ptr<TokenTable::ArrayStorage> arrays = std::make_shared<TokenTable::ArrayStorage>();
  std::unique_ptr<Files> files;
};

TokenTableWriter::TokenTableWriter() : sink_(std::make_unique<Sink>()) {}

TokenTableWriter::TokenTableWriter(const std::filesystem::path& path, std::string_view key) : TokenTableWriter() {
  HEDDLE_CHECK(key.size() == Header().key.size());
  on_disk([&] { sink_->files = std::make_unique<Sink::Files>(path, key); });
}

TokenTableWriter::~TokenTableWriter() = default;

void TokenTableWriter::append_ids(std::span<const std::int32_t> ids) {
  if (sink_->files) {
    on_disk([&] { sink_->files->put(std::as_bytes(ids)); });
  } else {
    sink_->arrays->ids.insert(sink_->arrays->ids.end(), ids.begin(), ids.end());
  }
  num_ids_ += static_cast<std::int64_t>(ids.size());
}

void TokenTableWriter::append_labels(std::span<const std::int32_t> labels) {
  if (sink_->files) {
    on_disk([&] { sink_->files->labels.append(std::as_bytes(labels)); });
  } else {
    sink_->arrays->labels.insert(sink_->arrays->labels.end(), labels.begin(), labels.end());
  }
  num_labels_ += static_cast<std::int64_t>(labels.size());
}

void TokenTableWriter::append_row(const TokenRow& row) {
  if (sink_->files) {
    on_disk([&] { sink_->files->rows.append(as_bytes(&row, sizeof(row))); });
  } else {
    sink_->arrays->rows.push_back(row);
  }
  num_rows_ += 1;
  if (row.kind == RowKind::text) stream_length_ += row.length - 1;
}

void TokenTableWriter::append(RowKind kind, std::int64_t line, std::span<const std::int32_t> ids,
                              std::span<const std::int32_t> labels) {
  HEDDLE_CHECK(labels.empty() || labels.size() == ids.size());
  TokenRow row;
  row.offset = num_ids_;
  row.length = static_cast<std::int64_t>(ids.size());
  row.label_offset = labels.empty() ? -1 : num_labels_;
  row.targets = std::max<std::int64_t>(row.length - 1, 0);
  if (!labels.empty()) row.targets -= std::count(labels.begin() + 1, labels.end(), -100);
  row.stream_start = stream_length_;
  row.line = line;
  row.kind = kind;
  if (row.targets == 0) {
    notes_.rows_without_targets.push_back(line);
    return;
  }
  append_ids(ids);
  append_labels(labels);
  append_row(row);
  text_offset_ = num_ids_;
}

void TokenTableWriter::append_pair(std::int64_t line, std::span<const std::int32_t> chosen,
                                   std::span<const std::int32_t> rejected, std::int32_t prompt) {
  const auto shorter = static_cast<std::int64_t>(std::min(chosen.size(), rejected.size()));
  if (shorter <= std::max(prompt, 1)) {  // nothing predicts the first id
    notes_.rows_without_targets.push_back(line);
    return;
  }
  append_answer(RowKind::chosen, line, chosen, prompt);
  append_answer(RowKind::rejected, line, rejected, prompt);
}

void TokenTableWriter::append_answer(RowKind kind, std::int64_t line, std::span<const std::int32_t> ids,
                                     std::int32_t prompt) {
  std::vector<std::int32_t> labels(ids.begin(), ids.end());
  std::fill_n(labels.begin(), prompt, -100);
  TokenRow row;
  row.offset = num_ids_;
  row.length = static_cast<std::int64_t>(ids.size());
  row.label_offset = num_labels_;
  row.targets = row.length - std::max(prompt, 1);
  row.stream_start = stream_length_;
  row.line = line;
  row.kind = kind;
  row.prompt = prompt;
  append_ids(ids);
  append_labels(labels);
  append_row(row);
  text_offset_ = num_ids_;
}

void TokenTableWriter::end_text(std::int64_t line) {
  TokenRow row;
  row.offset = std::exchange(text_offset_, num_ids_);
  row.length = num_ids_ - row.offset;
  row.targets = row.length - 1;
  row.stream_start = stream_length_;
  row.line = line;
  if (row.length < 2) {
    notes_.rows_without_targets.push_back(line);
  } else {
    append_row(row);
  }
}

void TokenTableWriter::append_table(const TokenTable& table) {
  std::vector<std::int32_t> values;
  for (std::int64_t i = 0; i < table.num_rows(); ++i) {
    const TokenRow source = table.row(i);
    TokenRow row = source;
    row.offset = num_ids_;
    row.stream_start = stream_length_;
    values.resize(static_cast<std::size_t>(row.length));
    table.read_ids(source, 0, values);
    append_ids(values);
    if (source.label_offset >= 0) {
      row.label_offset = num_labels_;
      table.read_labels(source, 0, values);
      append_labels(values);
    }
    append_row(row);
  }
  text_offset_ = num_ids_;
  notes_.append(table.notes());
}

TokenTable TokenTableWriter::finish() {
  if (!sink_->files) {
    const auto arrays = std::move(sink_->arrays);
    arrays->num_ids = num_ids_;
    arrays->num_labels = num_labels_;
    arrays->num_rows = num_rows_;
    TokenTable table(arrays);
    HEDDLE_CHECK(table.check_rows());
    table.notes_ = std::move(notes_);
    return table;
  }
  return on_disk([&] {
    auto& files = *sink_->files;
    write_tail();
    files.table.commit();

    std::string damage;
    auto table = TokenTable::open(files.path, files.key, damage);
    if (!table) fail("{}: damaged as soon as it was written: {}", files.path.string(), damage);
    return *std::move(table);
  });
}

void TokenTableWriter::finish_part() {
  on_disk([&] {
    write_tail();
    sink_->files->table.commit_unsynced();
  });
}

/// What stands behind the ids in a cache file, and its header.
void TokenTableWriter::write_tail() {
  auto& files = *sink_->files;
  files.labels.read_back([&](auto bytes) { files.put(bytes); });
  constexpr std::int32_t kPadding = 0;
  if ((num_ids_ + num_labels_) % 2 != 0) files.put(as_bytes(&kPadding, sizeof(kPadding)));
  files.rows.read_back([&](auto bytes) { files.put(bytes); });
  const std::string notes = write_notes(notes_);
  files.put(as_bytes(notes.data(), notes.size()));
  files.flush();

  Header& header = files.header;
  std::copy(files.key.begin(), files.key.end(), header.key.begin());
  header.num_ids = num_ids_;
  header.num_labels = num_labels_;
  header.num_rows = num_rows_;
  header.notes_bytes = static_cast<std::int64_t>(notes.size());
  header.stream_length = stream_length_;
  const XXH128_hash_t hash = XXH3_128bits_digest(files.hash.get());
  header.payload_low = hash.low64;
  header.payload_high = hash.high64;
  header.checksum = header_checksum(header);
  files.table.write_at(0, as_bytes(&header, sizeof(header)));
}

struct CacheKey::State {
  HashState hash = new_hash();
};

CacheKey::CacheKey() : state_(std::make_unique<State>()) {}
CacheKey::~CacheKey() = default;

void CacheKey::add(std::string_view bytes) {
  add(static_cast<std::int64_t>(bytes.size()));
  add_bytes(bytes);
}

void CacheKey::add_bytes(std::string_view bytes) {
  XXH3_128bits_update(state_->hash.get(), bytes.data(), bytes.size());
}

void CacheKey::add(std::int64_t value) { XXH3_128bits_update(state_->hash.get(), &value, sizeof(value)); }

void CacheKey::add(std::span<const std::int32_t> values) {
  add(std::string_view(reinterpret_cast<const char*>(values.data()), values.size_bytes()));
}

std::string CacheKey::digest() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->hash.get());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace heddle
