#include "data/record_stream.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "data/parquet_rows.h"

namespace heddle {
namespace {

/// Enough to keep all threads busy, few enough to bound memory.
constexpr std::size_t kBatchRecords = 8192, kWindow = std::size_t{8} << 20;

DataStream open_rows(const FileReader& file, DataFormat format, const ColumnNames& columns) {
  if (format != DataFormat::parquet) return {file, compression_of(file.path())};
  const auto is_used = [&columns](std::string_view name) {
    return is_row_field(name) ||
           std::any_of(columns.begin(), columns.end(), [&](const auto& ours) { return ours.second == name; });
  };
  return DataStream(open_parquet_rows(file, is_used));
}

}  // namespace

RecordStream::RecordStream(const FileReader& file, DataFormat format, const ColumnNames& columns)
    : bytes_(open_rows(file, format, columns)),
      reader_(format == DataFormat::parquet ? DataFormat::json_lines : format) {}

bool RecordStream::next_batch(std::vector<Record>& records) {
  records.clear();
  Record record;
  for (;;) {
    while (records.size() < kBatchRecords && reader_.next(record)) records.push_back(record);
    if (!records.empty()) return true;
    if (is_last_) return false;
    fill();
  }
}

/// Moves the window on; makes it longer where it holds no whole record.
void RecordStream::fill() {
  const std::size_t kept = window_.size() - reader_.used();
  const std::size_t wanted = reader_.used() > 0 ? std::max(kWindow, kept) : std::max(kWindow, 2 * kept);
  window_.erase(0, reader_.used());
  window_.resize(wanted);
  const std::size_t read = bytes_.read(std::span<char>(window_).subspan(kept));
  is_last_ = read < wanted - kept;
  window_.resize(kept + read);
  reader_.feed(window_, is_last_);
}

}  // namespace heddle
