#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace heddle {

/// The cache on disk cannot be written: a full disk, a folder that is not ours. Training can go on without it.
class CacheError : public Error {
 public:
  using Error::Error;
};

enum class RowKind : std::int32_t {
  text,          ///< may be cut: truncated, or packed as a stream
  ids,           ///< taken whole
  conversation,  ///< may be truncated, but is packed whole
  chosen,        ///< the preferred one of two answers; the rejected one is the next row
  rejected,
};

/// A tokenized row: where its ids lie, and what training needs to know without reading them.
struct TokenRow {
  std::int64_t offset = 0;         ///< of its first id among the table's ids
  std::int64_t length = 0;         ///< ids, at least 2
  std::int64_t label_offset = -1;  ///< of its first label among the table's labels; -1: the ids are the labels
  std::int64_t targets = 0;  ///< labels other than -100, the first (which nothing predicts) not counted; at least 1
  std::int64_t stream_start = 0;  ///< targets of the text rows before it
  std::int64_t line = 0;          ///< physical, from 1
  RowKind kind = RowKind::text;
  std::int32_t prompt = 0;  ///< of a chosen or rejected answer: its first so many ids are the prompt
};

/// What happened to a file's other rows.
struct TableNotes {
  struct BadRow {
    std::int64_t line = 0;
    std::string reason;
  };
  std::vector<BadRow> bad_rows;
  std::vector<std::int64_t> rows_without_targets;  // lines
  std::vector<std::string> ignored_fields;         // the first few
  std::map<std::string, std::int64_t> formats;     // rows of each, by what it is called
  std::int64_t records = 0;                        // of the file, whatever became of them

  void note_ignored(const std::vector<std::string>& fields);
  /// Those of what follows in the same file.
  void append(const TableNotes& behind);
};

/// The rows of one data file, tokenized; read-only, in memory or read from the cache file as they are asked for. Does
/// not depend on the data file's path, nor on how rows are cut later. May be read from many threads at once.
class TokenTable {
 public:
  std::int64_t num_rows() const { return num_rows_; }
  TokenRow row(std::int64_t index) const;
  /// The last row whose stream_start is at most `position`.
  std::int64_t find_stream_row(std::int64_t position) const;
  /// Copies ids of the row from number `first` on. Throws Error if the cache file has shrunk since it was opened.
  void read_ids(const TokenRow& row, std::int64_t first, std::span<std::int32_t> target) const;
  /// The same for labels; label i belongs to id i.
  void read_labels(const TokenRow& row, std::int64_t first, std::span<std::int32_t> target) const;
  const TableNotes& notes() const { return notes_; }
  /// Targets of all text rows.
  std::int64_t stream_length() const { return stream_length_; }

  /// Opens a cache file. Nothing if there is none; if it is damaged (not whole, other bytes than were written, of
  /// another key) nothing either, and `damage` says what is wrong.
  static std::optional<TokenTable> open(const std::filesystem::path& path, std::string_view key, std::string& damage);

 private:
  friend class TokenTableWriter;
  class Storage;
  class ArrayStorage;
  class FileStorage;
  explicit TokenTable(std::shared_ptr<const Storage> storage);
  bool check_rows();

  std::shared_ptr<const Storage> storage_;
  std::int64_t num_rows_ = 0, stream_length_ = 0;
  std::vector<std::int64_t> stream_marks_;  // stream_start of every kRowsOfBlock-th row
  TableNotes notes_;
};

/// Collects rows in file order. With a path, ids go to disk as they come and memory stays bounded; the cache file
/// appears under its name once it is whole.
class TokenTableWriter {
 public:
  /// In memory.
  TokenTableWriter();
  /// Into the cache file `path`, whose folder exists. Throws CacheError if it cannot be written, as do the members
  /// below.
  TokenTableWriter(const std::filesystem::path& path, std::string_view key);
  ~TokenTableWriter();
  TokenTableWriter(const TokenTableWriter&) = delete;
  TokenTableWriter& operator=(const TokenTableWriter&) = delete;

  /// `labels` is empty or as long as `ids`. A row without targets is noted and left out.
  void append(RowKind kind, std::int64_t line, std::span<const std::int32_t> ids, std::span<const std::int32_t> labels);
  /// Both answers to a prompt of so many ids; where one is left without targets, both are left out.
  void append_pair(std::int64_t line, std::span<const std::int32_t> chosen, std::span<const std::int32_t> rejected,
                   std::int32_t prompt);
  /// A text in pieces: append_ids() any number of times, then end_text(); the ids of one that is not ended belong to no
  /// row.
  void append_ids(std::span<const std::int32_t> ids);
  void end_text(std::int64_t line);
  /// Rows and notes of another table, behind those that are there; text in pieces has none.
  void append_table(const TokenTable& table);
  TableNotes& notes() { return notes_; }
  /// The table; once.
  TokenTable finish();
  /// The cache file, which may be lost by a power cut; once.
  void finish_part();

 private:
  struct Sink;
  std::unique_ptr<Sink> sink_;
  TableNotes notes_;
  void append_answer(RowKind kind, std::int64_t line, std::span<const std::int32_t> ids, std::int32_t prompt);
  void append_labels(std::span<const std::int32_t> labels);
  void append_row(const TokenRow& row);
  void write_tail();
  std::int64_t num_ids_ = 0, num_labels_ = 0, num_rows_ = 0, stream_length_ = 0;
  std::int64_t text_offset_ = 0;  // of the first id that belongs to no row yet
};

/// Collects what decides a table's content into a key: 32 hexadecimal digits of xxHash128.
class CacheKey {
 public:
  CacheKey();
  ~CacheKey();
  CacheKey(const CacheKey&) = delete;
  CacheKey& operator=(const CacheKey&) = delete;

  void add(std::string_view bytes);        // its length too, so that neighbours cannot run together
  void add_bytes(std::string_view bytes);  // a part of something whose length was added
  void add(std::int64_t value);
  void add(std::span<const std::int32_t> values);
  std::string digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace heddle
