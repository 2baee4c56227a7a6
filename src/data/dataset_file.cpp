#include "data/dataset_file.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/threads.h"
#include "data/data_stream.h"
#include "data/record_stream.h"
#include "data/row_parser.h"
#include "data/row_records.h"
#include "data/token_parts.h"
#include "formats/aside_file.h"
#include "formats/file_reader.h"

namespace heddle {
namespace {

/// Raised whenever the rows made of the same content, or the notes about them, change.
constexpr std::int64_t kCacheVersion = 4;

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

struct EncodedRow {
  RowKind kind = RowKind::text;
  RowFormat format = RowFormat::text;
  std::vector<std::int32_t> ids, labels;
  std::vector<std::int32_t> rejected_ids;  // of a pair, whose chosen answer `ids` are
  std::int32_t prompt = 0;                 // ids of a pair's prompt
  std::vector<std::string> ignored_fields;
  std::optional<TableNotes::BadRow> bad;
  std::exception_ptr failure;  // not the row's fault: memory ran out
};

void check_ids(std::span<const std::int32_t> ids, std::int64_t line, const DataFileOptions& options) {
  for (const std::int32_t id : ids) {
    const std::int32_t vocab_size = options.rules.vocab_size;
    if (id < 0 || id >= vocab_size) {
      throw RowError(line, fmt::format("the tokenizer gives id {}, the model has {}; expected ids from 0 to {}", id,
                                       vocab_size, vocab_size - 1));
    }
  }
}

const RowEncoder& encoder_of(const DataFileOptions& options, std::int64_t line) {
  if (options.encoder == nullptr)
    throw RowError(line,
                   "text needs a tokenizer, and there is none beside the model; tokenizer_name says where one is");
  return *options.encoder;
}

/// A pair's answers begin where the ids of the prompt end in both, as TRL has it: what one of them merges with the end
/// of the prompt belongs to the answers.
void encode_pair(const Row& parsed, const ConversationEncoder& conversations, EncodedRow& row) {
  const auto encode = [&](const auto& text, const auto& conversation) {
    return text ? conversations.encode(*text) : conversations.encode(*conversation);
  };
  LabelledIds chosen = encode(parsed.pair, parsed.conversation);
  LabelledIds rejected = encode(parsed.rejected_pair, parsed.rejected_conversation);
  const auto prompt_of = [](const LabelledIds& answer) {
    const auto& labels = answer.labels;
    return std::find_if(labels.begin(), labels.end(), [](std::int32_t label) { return label != -100; }) -
           labels.begin();
  };
  row.kind = RowKind::chosen;
  row.prompt = static_cast<std::int32_t>(std::min(prompt_of(chosen), prompt_of(rejected)));
  row.ids = std::move(chosen.ids);
  row.rejected_ids = std::move(rejected.ids);
}

void encode_record(const Record& record, const DataFileOptions& options, EncodedRow& row) {
  Row parsed = parse_row(record, options.rules);
  row.format = parsed.format;
  row.ignored_fields = std::move(parsed.ignored_fields);
  if (parsed.input_ids) {
    row.kind = RowKind::ids;
    row.ids = *std::move(parsed.input_ids);
    if (parsed.labels) row.labels = *std::move(parsed.labels);
    return;
  }
  const RowEncoder& encoder = encoder_of(options, record.line);
  if (parsed.text) {
    row.kind = RowKind::text;
    row.ids = encoder.encode(*parsed.text);
  } else if (options.rules.preference) {
    encode_pair(parsed, *options.conversations, row);
    check_ids(row.rejected_ids, record.line, options);
  } else {
    row.kind = RowKind::conversation;
    const auto& conversations = *options.conversations;
    LabelledIds encoded = parsed.pair ? conversations.encode(*parsed.pair) : conversations.encode(*parsed.conversation);
    row.ids = std::move(encoded.ids);
    row.labels = std::move(encoded.labels);
  }
  check_ids(row.ids, record.line, options);
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

/// Throws RowError for a bad row that is not to be skipped.
void append_row(const EncodedRow& row, std::int64_t line, const DataFileOptions& options, TokenTableWriter& writer) {
  TableNotes& notes = writer.notes();
  ++notes.records;
  if (row.bad) {
    if (!options.skip_bad_rows) throw RowError(row.bad->line, row.bad->reason);
    notes.bad_rows.push_back(*row.bad);
    return;
  }
  notes.note_ignored(row.ignored_fields);
  ++notes.formats[std::string(describe(row.format))];
  if (row.kind == RowKind::chosen) {
    writer.append_pair(line, row.ids, row.rejected_ids, row.prompt);
  } else {
    writer.append(row.kind, line, row.ids, row.labels);
  }
}

/// Goes on behind the records that the table has. `parts`: where they go too, for a run that is interrupted; or null.
void tokenize_records(RecordStream&& stream, const DataFileOptions& options, TokenTableWriter& writer,
                      TokenParts* parts) {
  std::vector<Record> records;
  std::vector<EncodedRow> rows;
  auto done = static_cast<std::size_t>(writer.notes().records);
  if (!options.skip_bad_rows && !writer.notes().bad_rows.empty())
    throw RowError(writer.notes().bad_rows[0].line, writer.notes().bad_rows[0].reason);
  while (stream.next_batch(records)) {
    const std::size_t skipped = std::min(done, records.size());
    done -= skipped;
    records.erase(records.begin(), records.begin() + static_cast<std::ptrdiff_t>(skipped));
    rows.assign(records.size(), {});
    parallel_for(static_cast<std::int64_t>(records.size()), [&](std::int64_t i, int) {
      const auto index = static_cast<std::size_t>(i);
      encode_or_note(records[index], options, rows[index]);
    });
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].failure) std::rethrow_exception(rows[i].failure);
      append_row(rows[i], records[i].line, options, writer);
      if (parts == nullptr) continue;
      append_row(rows[i], records[i].line, options, parts->under_way());
      parts->add_text(static_cast<std::int64_t>(records[i].text.size()));
    }
  }
}

/// A plain text is one row.
void tokenize_text(DataStream& bytes, const DataFileOptions& options, TokenTableWriter& writer) {
  std::string start(kByteOrderMark.size(), '\0');
  start.resize(bytes.read(start));
  if (start.empty()) return;
  if (start == kByteOrderMark) {
    start.assign(1, '\0');
    start.resize(bytes.read(start));
    if (start.empty()) return;
  }
  const auto rest = [&bytes](std::span<char> target) { return bytes.read(target); };
  try {
    if (options.rules.preference)
      throw RowError(1, "plain text, and loss_type asks for preference pairs; expected rows with chosen and rejected");
    encoder_of(options, 1).encode(read_in_turn(read_from(start), rest), [&](std::span<const std::int32_t> ids) {
      check_ids(ids, 1, options);
      writer.append_ids(ids);
    });
    writer.end_text(1);
    ++writer.notes().formats[std::string(describe(RowFormat::text))];
  } catch (const RowError& error) {
    if (!options.skip_bad_rows) throw;
    writer.notes().bad_rows.push_back({error.line(), error.what()});
  }
}

TokenTable tokenize(const FileReader& file, DataFormat format, const DataFileOptions& options, TokenTableWriter& writer,
                    TokenParts* parts) {
  if (format == DataFormat::plain_text) {
    DataStream bytes(file, compression_of(file.path()));
    tokenize_text(bytes, options, writer);
  } else {
    tokenize_records(RecordStream(file, format, options.rules.columns), options, writer, parts);
  }
  file.check_unchanged();
  return writer.finish();
}

std::string cache_key(const FileReader& file, DataFormat format, const DataFileOptions& options) {
  CacheKey key;
  key.add(kCacheVersion);
  key.add(static_cast<std::int64_t>(format));
  key.add(static_cast<std::int64_t>(compression_of(file.path())));
  key.add(options.rules.vocab_size);
  key.add(static_cast<std::int64_t>(options.rules.columns.size()));
  for (const auto& [ours, column] : options.rules.columns) {
    key.add(ours);
    key.add(column);
  }
  key.add(options.conversation_key);
  key.add(static_cast<std::int64_t>(options.rules.preference));
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
  TokenParts::remove_old(options.cache_folder);
  TokenTableWriter writer(cache_path, key);
  TokenParts parts(cache_path, key, options.part_bytes);
  if (const std::int64_t records = parts.take_over(writer); records > 0) {
    note("{}: {} that an interrupted run had tokenized are taken over", file.path(),
         format_count(static_cast<std::uint64_t>(records), "row"));
  }
  TokenTable table = tokenize(file, format, options, writer, &parts);
  parts.remove();
  return table;
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
    return tokenize(file, format, options, writer, nullptr);
  } catch (const RowError& error) {
    fail("{}:{}: {}", path, error.line(), error.what());
  }
}

}  // namespace heddle
