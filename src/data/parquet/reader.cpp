#include <arrow/array.h>
#include <arrow/buffer.h>
#include <arrow/io/interfaces.h>
#include <arrow/memory_pool.h>
#include <arrow/record_batch.h>
#include <arrow/result.h>
#include <arrow/status.h>
#include <parquet/arrow/reader.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>
#include <parquet/schema.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "data/parquet/module.h"
#include "data/parquet/row_json.h"

namespace heddle {
namespace {

/// Rows are decoded some MiB at a time, of each column a block at a time.
constexpr std::int64_t kBatchBytes = std::int64_t{8} << 20, kBatchRows = 8192, kColumnBlock = std::int64_t{256} << 10;
constexpr std::size_t kTextBytes = std::size_t{1} << 20, kReason = 300;

/// The program's file as Arrow reads files. An exception of the program's waits here while Arrow hands its status up.
class InputFile final : public arrow::io::RandomAccessFile {
 public:
  explicit InputFile(const ParquetInput& input) : input_(input) {}

  arrow::Status Close() override {
    is_closed_ = true;
    return arrow::Status::OK();
  }
  bool closed() const override { return is_closed_; }
  arrow::Result<std::int64_t> GetSize() override { return static_cast<std::int64_t>(input_.size); }
  arrow::Result<std::int64_t> Tell() const override { return at_; }
  arrow::Status Seek(std::int64_t position) override {
    at_ = position;
    return arrow::Status::OK();
  }
  arrow::Result<std::int64_t> Read(std::int64_t size, void* target) override {
    ARROW_ASSIGN_OR_RAISE(const std::int64_t read, ReadAt(at_, size, target));
    at_ += read;
    return read;
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(std::int64_t size) override {
    ARROW_ASSIGN_OR_RAISE(auto buffer, ReadAt(at_, size));
    at_ += buffer->size();
    return buffer;
  }
  arrow::Result<std::int64_t> ReadAt(std::int64_t position, std::int64_t size, void* target) override {
    const auto end = static_cast<std::int64_t>(input_.size);
    if (position < 0 || size < 0 || position > end) return arrow::Status::Invalid("it points outside the file");
    size = std::min(size, end - position);
    try {
      input_.read(static_cast<std::uint64_t>(position), {static_cast<char*>(target), static_cast<std::size_t>(size)});
    } catch (...) {
      failure_ = std::current_exception();
      return arrow::Status::IOError("the file cannot be read");
    }
    return size;
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> ReadAt(std::int64_t position, std::int64_t size) override {
    const std::int64_t rest = std::max<std::int64_t>(static_cast<std::int64_t>(input_.size) - position, 0);
    ARROW_ASSIGN_OR_RAISE(auto buffer, arrow::AllocateResizableBuffer(std::clamp<std::int64_t>(size, 0, rest), pool()));
    ARROW_ASSIGN_OR_RAISE(const std::int64_t read, ReadAt(position, size, buffer->mutable_data()));
    ARROW_RETURN_NOT_OK(buffer->Resize(read));
    return std::shared_ptr<arrow::Buffer>(std::move(buffer));
  }

  /// malloc, as for all else in the program.
  static arrow::MemoryPool* pool() { return arrow::system_memory_pool(); }
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  const ParquetInput& input_;
  std::int64_t at_ = 0;
  bool is_closed_ = false;
  std::exception_ptr failure_;
};

void check(const arrow::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.message());
}

template <typename T>
T take(arrow::Result<T> result) {
  check(result.status());
  return std::move(result).ValueUnsafe();
}

class ParquetRows final : public DataStream::Decoder {
 public:
  explicit ParquetRows(const ParquetInput& input) : input_(input), file_(std::make_shared<InputFile>(input_)) {
    guard([&] { open(); });
  }

  std::size_t read(std::span<char> target) override {
    std::size_t done = 0;
    while (done < target.size()) {
      if (at_ == text_.size() && !guard([&] { return fill(); })) break;
      const std::size_t size = std::min(text_.size() - at_, target.size() - done);
      std::copy_n(text_.data() + at_, size, target.data() + done);
      at_ += size;
      done += size;
    }
    return done;
  }

 private:
  void open() {
    parquet::ReaderProperties properties(InputFile::pool());
    properties.enable_buffered_stream();
    properties.set_buffer_size(kColumnBlock);
    properties.set_page_checksum_verification(true);
    parquet::ArrowReaderProperties arrow_properties(false);
    arrow_properties.set_pre_buffer(false);
    arrow_properties.set_arrow_extensions_enabled(true);
    parquet::arrow::FileReaderBuilder builder;
    check(builder.Open(file_, properties));
    builder.memory_pool(InputFile::pool())->properties(arrow_properties);
    reader_ = take(builder.Build());
    choose_columns();
  }

  void choose_columns() {
    const auto& schema = *metadata().schema();
    std::unordered_set<std::string> seen;
    for (int i = 0; i < schema.num_columns(); ++i) {
      const std::string& name = schema.GetColumnRoot(i)->name();
      const bool is_used = input_.is_used(name);
      if (is_used) columns_.push_back(i);
      if (!seen.insert(name).second) continue;
      std::string& nulls = is_used ? used_nulls_ : unread_nulls_;
      append_json_string(name, nulls);
      nulls += ":null,";
    }
  }

  const parquet::FileMetaData& metadata() const { return *reader_->parquet_reader()->metadata(); }

  /// The text of more rows. False at the end of the file.
  bool fill() {
    text_.clear();
    at_ = 0;
    while (rows_ == nullptr || row_ == rows_->length()) {
      if (!next_batch()) return false;
    }
    while (text_.size() < kTextBytes && row_ < rows_->length()) append_row(row_++);
    return true;
  }

  /// A row without any value says what is null in it, for the error that it becomes.
  void append_row(std::int64_t row) {
    text_ += '{';
    const std::size_t begin = text_.size();
    append_members(*rows_, row, text_);
    if (text_.size() == begin) text_ += used_nulls_;
    text_ += unread_nulls_;
    if (text_.back() == ',') text_.pop_back();
    text_ += "}\n";
  }

  bool next_batch() {
    if (batches_ == nullptr) {
      if (group_ == metadata().num_row_groups()) return false;
      begin_group();
    }
    std::shared_ptr<arrow::RecordBatch> batch;
    check(batches_->ReadNext(&batch));
    if (batch == nullptr) {
      end_group();
      return true;
    }
    check(batch->Validate());
    rows_ = take(batch->ToStructArray());
    row_ = 0;
    group_rows_ += rows_->length();
    return true;
  }

  void begin_group() {
    const auto group = metadata().RowGroup(group_);
    std::int64_t bytes = 0;
    for (const int column : columns_) bytes += group->ColumnChunk(column)->total_uncompressed_size();
    const std::int64_t row_bytes = std::max<std::int64_t>(bytes / std::max<std::int64_t>(group->num_rows(), 1), 1);
    reader_->set_batch_size(std::clamp<std::int64_t>(kBatchBytes / row_bytes, 1, kBatchRows));
    batches_ = take(reader_->GetRecordBatchReader({group_}, columns_));
    group_rows_ = 0;
  }

  void end_group() {
    const std::int64_t expected = metadata().RowGroup(group_)->num_rows();
    if (group_rows_ != expected) {
      throw std::runtime_error(fmt::format("it has {} rows, the file's metadata says {}", group_rows_, expected));
    }
    batches_ = nullptr;
    rows_ = nullptr;
    ++group_;
  }

  /// Whatever Arrow reports becomes an error that names the file.
  template <typename Action>
  auto guard(const Action& action) -> decltype(action()) {
    try {
      return action();
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {
      file_->rethrow();
      std::string reason = error.what();
      std::replace(reason.begin(), reason.end(), '\n', ' ');
      fail("{}: not readable as Parquet{}: {}", input_.path,
           reader_ == nullptr ? "" : fmt::format(", row group {}", group_ + 1), reason.substr(0, kReason));
    }
  }

  ParquetInput input_;
  std::shared_ptr<InputFile> file_;
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::vector<int> columns_;               // leaves of the schema
  std::string used_nulls_, unread_nulls_;  // each column as a null, as append_members() writes members
  int group_ = 0;
  std::int64_t group_rows_ = 0;
  std::unique_ptr<arrow::RecordBatchReader> batches_;  // of that group
  std::shared_ptr<arrow::StructArray> rows_;
  std::int64_t row_ = 0;
  std::string text_;
  std::size_t at_ = 0;
};

}  // namespace
}  // namespace heddle

extern "C" heddle::DataStream::Decoder* heddle_open_parquet(const heddle::ParquetInput& input) {
  return new heddle::ParquetRows(input);
}
