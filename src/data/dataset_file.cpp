#include "data/dataset_file.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/threads.h"
#include "data/row_parser.h"
#include "data/row_records.h"
#include "formats/aside_file.h"
#include "formats/file_reader.h"

namespace heddle {
namespace {

/// Raised whenever the rows made of the same content change.
constexpr std::int64_t kCacheVersion = 1;

/// Read and tokenized together: enough to keep all threads busy, few enough to bound memory.
constexpr std::size_t kBatchRecords = 8192, kWindow = std::size_t{8} << 20;
constexpr std::size_t kIgnoredFieldsNamed = 8;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

struct EncodedRow {
  RowKind kind = RowKind::text;
  std::vector<std::int32_t> ids, labels;
  std::vector<std::string> ignored_fields;
  std::optional<TableNotes::BadRow> bad;
  std::exception_ptr failure;  // not the row's fault: memory ran out
};

void check_ids(std::span<const std::int32_t> ids, std::int64_t line, const DataFileOptions& options) {
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= options.vocab_size) {
      throw RowError(line, fmt::format("the tokenizer gives id {}, the model has {}; expected ids from 0 to {}", id,
                                       options.vocab_size, options.vocab_size - 1));
    }
  }
}

const RowEncoder& encoder_of(const DataFileOptions& options, std::int64_t line) {
  if (options.encoder == nullptr) throw RowError(line, "text needs a tokenizer, and the run has none");
  return *options.encoder;
}

void encode_record(const Record& record, const DataFileOptions& options, EncodedRow& row) {
  Row parsed = parse_row(record, options.vocab_size);
  row.ignored_fields = std::move(parsed.ignored_fields);
  if (parsed.text) {
    row.kind = RowKind::text;
    row.ids = encoder_of(options, record.line).encode(*parsed.text);
    check_ids(row.ids, record.line, options);
  } else {
    row.kind = RowKind::ids;
    row.ids = *std::move(parsed.input_ids);
    if (parsed.labels) row.labels = *std::move(parsed.labels);
  }
}

/// What went wrong goes into the row: parallel bodies must not throw.
void encode_or_note(const Record& record, const DataFileOptions& options, EncodedRow& row) {
  try {
    encode_record(record, options, row);
  } catch (const RowError& error) {
    row.bad = {error.line(), error.what()};
  } catch (const Error& error) {
    row.bad = {record.line, error.what()};
  } catch (...) {
    row.failure = std::current_exception();
  }
}

void note_ignored_fields(const std::vector<std::string>& fields, TableNotes& notes) {
  auto& named = notes.ignored_fields;
  for (const auto& field : fields) {
    if (named.size() == kIgnoredFieldsNamed) return;
    if (std::find(named.begin(), named.end(), field) == named.end()) named.push_back(field);
  }
}

/// Records of a file, a batch at a time: of the file only a window is in memory.
class RecordStream {
 public:
  RecordStream(const FileReader& file, DataFormat format) : file_(file), reader_(format) {}

  /// False at the end. The records' text is there until the next call.
  bool next_batch(std::vector<Record>& records) {
    records.clear();
    Record record;
    for (;;) {
      while (records.size() < kBatchRecords && reader_.next(record)) records.push_back(record);
      if (!records.empty()) return true;
      if (is_last_) return false;
      fill();
    }
  }

 private:
  /// Moves the window on; makes it longer where it holds no whole record.
  void fill() {
    const std::size_t kept = window_.size() - reader_.used();
    const std::size_t wanted = reader_.used() > 0 ? std::max(kWindow, kept) : std::max(kWindow, 2 * kept);
    window_.erase(0, reader_.used());
    window_.resize(
        static_cast<std::size_t>(std::min<std::uint64_t>(std::max(wanted, kept), kept + file_.size() - at_)));
    file_.read(at_, std::span<char>(window_).subspan(kept));
    at_ += window_.size() - kept;
    is_last_ = at_ == file_.size();
    reader_.feed(window_, is_last_);
  }

  const FileReader& file_;
  RecordReader reader_;
  std::string window_;
  std::uint64_t at_ = 0;
  bool is_last_ = false;
};

void tokenize_records(const FileReader& file, DataFormat format, const DataFileOptions& options,
                      TokenTableWriter& writer) {
  RecordStream stream(file, format);
  std::vector<Record> records;
  std::vector<EncodedRow> rows;
  while (stream.next_batch(records)) {
    rows.assign(records.size(), {});
    parallel_for(static_cast<std::int64_t>(records.size()), [&](std::int64_t i, int) {
      const auto index = static_cast<std::size_t>(i);
      encode_or_note(records[index], options, rows[index]);
    });
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const EncodedRow& row = rows[i];
      if (row.failure) std::rethrow_exception(row.failure);
      if (row.bad) {
        if (!options.skip_bad_rows) throw RowError(row.bad->line, row.bad->reason);
        writer.notes().bad_rows.push_back(*row.bad);
        continue;
      }
      note_ignored_fields(row.ignored_fields, writer.notes());
      writer.append(row.kind, records[i].line, row.ids, row.labels);
    }
  }
}

/// A plain text is one row.
void tokenize_text(const FileReader& file, const DataFileOptions& options, TokenTableWriter& writer) {
  std::uint64_t at = 0;
  std::string start(static_cast<std::size_t>(std::min<std::uint64_t>(kByteOrderMark.size(), file.size())), '\0');
  file.read(0, std::span<char>(start));
  if (start == kByteOrderMark) at = start.size();
  if (at == file.size()) return;
  const auto read = [&](std::span<char> target) {
    target = target.first(static_cast<std::size_t>(std::min<std::uint64_t>(target.size(), file.size() - at)));
    file.read(at, target);
    at += target.size();
    return target.size();
  };
  try {
    encoder_of(options, 1).encode(read, [&](std::span<const std::int32_t> ids) {
      check_ids(ids, 1, options);
      writer.append_ids(ids);
    });
    writer.end_text(1);
  } catch (const RowError& error) {
    if (!options.skip_bad_rows) throw;
    writer.notes().bad_rows.push_back({error.line(), error.what()});
  }
}

TokenTable tokenize(const FileReader& file, DataFormat format, const DataFileOptions& options,
                    TokenTableWriter& writer) {
  if (format == DataFormat::plain_text) {
    tokenize_text(file, options, writer);
  } else {
    tokenize_records(file, format, options, writer);
  }
  file.check_unchanged();
  return writer.finish();
}

std::string cache_key(const FileReader& file, DataFormat format, const DataFileOptions& options) {
  CacheKey key;
  key.add(kCacheVersion);
  key.add(static_cast<std::int64_t>(format));
  key.add(options.vocab_size);
  key.add(static_cast<std::int64_t>(options.encoder != nullptr));
  if (options.encoder != nullptr) {
    key.add(options.encoder->tokenizer().fingerprint());
    key.add(options.encoder->leading());
    key.add(options.encoder->trailing());
  }
  key.add(static_cast<std::int64_t>(file.size()));
  file.read_from(0, [&](std::string_view bytes) { key.add_bytes(bytes); });
  return key.digest();
}

TokenTable load_cached(const FileReader& file, DataFormat format, const DataFileOptions& options) {
  remove_abandoned(options.cache_folder);
  const std::string key = cache_key(file, format, options);
  const auto cache_path = options.cache_folder / (key + ".tokens");
  std::string damage;
  if (auto table = TokenTable::open(cache_path, key, damage)) {
    const auto& bad_rows = table->notes().bad_rows;
    if (!bad_rows.empty() && !options.skip_bad_rows) throw RowError(bad_rows[0].line, bad_rows[0].reason);
    return *std::move(table);
  }
  if (!damage.empty()) note("{}: the token cache is damaged ({}); tokenizing again", cache_path.string(), damage);
  std::error_code code;
  std::filesystem::create_directories(options.cache_folder, code);
  TokenTableWriter writer(cache_path, key);
  return tokenize(file, format, options, writer);
}

}  // namespace

TokenTable load_data_file(const std::string& path, const DataFileOptions& options) {
  const DataFormat format = data_format(path);
  const FileReader file(path);
  try {
    if (!options.cache_folder.empty()) {
      try {
        return load_cached(file, format, options);
      } catch (const CacheError& error) {
        warning("{}; the tokens of {} stay in memory", error.what(), path);
      }
    }
    TokenTableWriter writer;
    return tokenize(file, format, options, writer);
  } catch (const RowError& error) {
    fail("{}:{}: {}", path, error.line(), error.what());
  }
}

}  // namespace heddle
