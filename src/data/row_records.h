#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace heddle {

/// A row that cannot be used. The text is the reason alone; whoever knows the path puts "PATH:LINE: " before it.
class RowError : public Error {
 public:
  RowError(std::int64_t line, const std::string& reason) : Error(reason), line_(line) {}
  std::int64_t line() const { return line_; }

 private:
  std::int64_t line_;  // physical, from 1
};

enum class DataFormat : std::int32_t { json_lines, json, plain_text, parquet };

/// By the file's extension, that of compression left out: .jsonl and .ndjson, .json, .parquet, anything else is plain
/// text. Throws Error for formats that would make no sense as text (.xz, .arrow, ...), and for compressed Parquet.
DataFormat data_format(const std::filesystem::path& path);

/// The text of one row in its file, and the line on which it starts.
struct Record {
  std::string_view text;
  std::int64_t line = 1;
};

/// Cuts a file, which may come in windows, into records: the lines that are not blank; of .json the elements of an
/// array, or objects one after another, on lines of their own or not; or the whole of a plain text. (The rows of
/// Parquet come as JSON Lines.) A byte order mark at the start is passed over. Whether a record is sound is for its
/// parser to say.
class RecordReader {
 public:
  explicit RecordReader(DataFormat format) : format_(format) {}
  /// For a file as a whole. `content` must outlive the reader.
  RecordReader(std::string_view content, DataFormat format) : RecordReader(format) { feed(content, true); }

  /// The next window of the file. It begins with what the one before had from used() on; `is_last` tells that the file
  /// ends with it. Records lie in the window they were read from.
  void feed(std::string_view window, bool is_last);
  std::size_t used() const { return at_; }
  /// False where the window, or the file, has no further whole record. Throws RowError if a JSON file is neither an
  /// array nor objects, where an array is not closed, and where something follows.
  bool next(Record& record);

 private:
  bool start();
  bool next_line(Record& record);
  bool next_element(Record& record);
  bool next_object(Record& record);
  template <typename Ends>
  bool move_to(Ends ends);
  bool after_array();
  bool rest(Record& record);
  void skip_space();

  DataFormat format_;
  std::string_view window_;
  bool is_last_ = false;
  std::size_t at_ = 0;
  std::int64_t line_ = 1;
  enum class State { start, lines, elements, after_array, objects, rest, end } state_ = State::start;
  bool has_begun_ = false, first_element_ = true;
};

/// Where the first byte lies that is not part of well-formed UTF-8 (The Unicode Standard, table 3-7), if any.
std::optional<std::size_t> find_invalid_utf8(std::string_view text);

/// Throws RowError naming line, column and byte if the record is not well-formed UTF-8.
void check_utf8(const Record& record);

}  // namespace heddle
