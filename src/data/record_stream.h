#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "data/data_stream.h"
#include "data/row_fields.h"
#include "data/row_records.h"
#include "formats/file_reader.h"

namespace heddle {

/// Records of a data file of rows, which may be compressed or Parquet, a batch at a time: of the file only a window is
/// in memory.
class RecordStream {
 public:
  /// `format` is data_format() of the file, which must outlive the stream, and no plain text. Of Parquet only columns
  /// that hold fields of rows are read; the others are null. Throws Error "PATH: ...", next_batch() too, and that
  /// RowError.
  RecordStream(const FileReader& file, DataFormat format, const ColumnNames& columns);

  /// False at the end. The records' text is there until the next call.
  bool next_batch(std::vector<Record>& records);

 private:
  void fill();

  DataStream bytes_;
  RecordReader reader_;
  std::string window_;
  bool is_last_ = false;
};

}  // namespace heddle
