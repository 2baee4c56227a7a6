#include "data/dataset_file.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/threads.h"
#include "data/mapped_file.h"
#include "data/row_parser.h"
#include "data/row_records.h"

namespace heddle {
namespace {

/// Raised whenever the rows made of the same content change.
constexpr std::int64_t kCacheVersion = 1;

/// Records tokenized together: enough to keep all threads busy, few enough to bound memory.
constexpr std::size_t kBatchRecords = 8192, kBatchBytes = std::size_t{8} << 20;
constexpr std::size_t kIgnoredFieldsNamed = 8;

struct EncodedRow {
  RowKind kind = RowKind::text;
  std::vector<std::int32_t> ids, labels;
  std::vector<std::string> ignored_fields;
  std::optional<TableNotes::BadRow> bad;
  std::exception_ptr failure;  // not the row's fault: memory ran out
};

void encode_text(const Record& record, std::string_view text, const DataFileOptions& options, EncodedRow& row) {
  if (options.encoder == nullptr) throw RowError(record.line, "text needs a tokenizer, and the run has none");
  row.kind = RowKind::text;
  row.ids = options.encoder->encode(text);
  for (const std::int32_t id : row.ids) {
    if (id < 0 || id >= options.vocab_size) {
      throw RowError(record.line, fmt::format("the tokenizer gives id {}, the model has {}; expected ids from 0 to {}",
                                              id, options.vocab_size, options.vocab_size - 1));
    }
  }
}

void encode_record(const Record& record, DataFormat format, const DataFileOptions& options, EncodedRow& row) {
  if (format == DataFormat::plain_text) {
    check_utf8(record);
    encode_text(record, record.text, options, row);
    return;
  }
  Row parsed = parse_row(record, options.vocab_size);
  row.ignored_fields = std::move(parsed.ignored_fields);
  if (parsed.text) {
    encode_text(record, *parsed.text, options, row);
  } else {
    row.kind = RowKind::ids;
    row.ids = *std::move(parsed.input_ids);
    if (parsed.labels) row.labels = *std::move(parsed.labels);
  }
}

/// What went wrong goes into the row: parallel bodies must not throw.
void encode_or_note(const Record& record, DataFormat format, const DataFileOptions& options, EncodedRow& row) {
  try {
    encode_record(record, format, options, row);
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

TokenTable tokenize(std::string_view content, DataFormat format, const std::string& path,
                    const DataFileOptions& options, TokenTableWriter& writer) {
  RecordReader reader(content, format);
  std::vector<Record> records;
  std::vector<EncodedRow> rows;
  for (bool more = true; more;) {
    records.clear();
    Record record;
    for (std::size_t bytes = 0; records.size() < kBatchRecords && bytes < kBatchBytes; bytes += record.text.size()) {
      if (more = reader.next(record); !more) break;
      records.push_back(record);
    }
    rows.assign(records.size(), {});
    parallel_for(static_cast<std::int64_t>(records.size()), [&](std::int64_t i, int) {
      const auto index = static_cast<std::size_t>(i);
      encode_or_note(records[index], format, options, rows[index]);
    });
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const EncodedRow& row = rows[i];
      if (row.failure) std::rethrow_exception(row.failure);
      if (row.bad) {
        if (!options.skip_bad_rows) fail("{}:{}: {}", path, row.bad->line, row.bad->reason);
        writer.notes().bad_rows.push_back(*row.bad);
        continue;
      }
      note_ignored_fields(row.ignored_fields, writer.notes());
      writer.append(row.kind, records[i].line, row.ids, row.labels);
    }
  }
  return writer.finish();
}

std::string cache_key(std::string_view content, DataFormat format, const DataFileOptions& options) {
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
  key.add(content);
  return key.digest();
}

TokenTable load_cached(std::string_view content, DataFormat format, const std::string& path,
                       const DataFileOptions& options) {
  const std::string key = cache_key(content, format, options);
  const auto cache_path = options.cache_folder / (key + ".tokens");
  std::string damage;
  if (auto table = TokenTable::open(cache_path, key, damage)) {
    const auto& bad_rows = table->notes().bad_rows;
    if (!bad_rows.empty() && !options.skip_bad_rows) fail("{}:{}: {}", path, bad_rows[0].line, bad_rows[0].reason);
    return *std::move(table);
  }
  if (!damage.empty()) note("{}: the token cache is damaged ({}); tokenizing again", cache_path.string(), damage);
  std::error_code code;
  std::filesystem::create_directories(options.cache_folder, code);
  TokenTableWriter writer(cache_path, key);
  return tokenize(content, format, path, options, writer);
}

}  // namespace

TokenTable load_data_file(const std::string& path, const DataFileOptions& options) {
  const DataFormat format = data_format(path);
  const MappedFile file(path);
  try {
    if (!options.cache_folder.empty()) {
      try {
        return load_cached(file.text(), format, path, options);
      } catch (const CacheError& error) {
        warning("{}; the tokens of {} stay in memory", error.what(), path);
      }
    }
    TokenTableWriter writer;
    return tokenize(file.text(), format, path, options, writer);
  } catch (const RowError& error) {
    fail("{}:{}: {}", path, error.line(), error.what());
  }
}

}  // namespace heddle
