#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/batches.h"
#include "data/chat_template.h"
#include "data/conversation_encoder.h"
#include "data/row_fields.h"
#include "data/tokenizer.h"

namespace heddle {

/// How rows are read and cut; the words are those of the run file.
struct DatasetOptions {
  struct File {
    std::string path;     ///< a file, or a folder of files
    double weight = 1.0;  ///< rows that an epoch takes, in times those there are
  };
  std::vector<File> files;
  std::int64_t max_length = 1024;
  std::optional<bool> packing;  ///< absent: true when every row is plain text
  bool skip_bad_rows = false;
  std::optional<bool> add_bos, add_eos;
  ColumnNames columns;                          ///< our names for fields, and the files'
  const ChatTemplate* chat_template = nullptr;  ///< null: conversations are an error; not kept
  LabelRules labels;
  bool preference = false;                        ///< rows are preference pairs, all of them
  std::optional<std::int64_t> max_prompt_length;  ///< of a pair's prompt the last so many ids are kept; then
  bool keeps_end = false;                         ///< of prompt and answer the last max_length, else the first
  std::int32_t vocab_size = 0;                    ///< of the model: ids and labels must be below
  std::filesystem::path cache_folder;             ///< empty: no cache on disk
};

/// A row of a file as it is trained on, before packing; label i belongs to id i.
struct Example {
  std::vector<std::int32_t> input_ids, labels;
  std::string source;  ///< "PATH:LINE"
};

/// Tokenized rows. A row of n tokens takes n-1 positions. Read from the cache file as they are asked for, or held in
/// arrays outside the step's arena where there is no cache. Immutable once loaded; all members may be called from many
/// threads at once.
class Dataset {
 public:
  /// Reads .jsonl/.json (the formats of RowFormat) and plain text files (.txt and others: the file is one document),
  /// also as .gz or .zst, and .parquet. `tokenizer` may be null when all rows carry ids; it is not kept. Tokenizes in
  /// parallel, once: the result is cached by content, tokenizer and options. Rows without a target are dropped in a
  /// warning that names them. Throws Error naming PATH:LINE.
  static Dataset load(const DatasetOptions& options, const Tokenizer* tokenizer);
  ~Dataset();
  Dataset(Dataset&&) noexcept;
  Dataset& operator=(Dataset&&) noexcept;

  /// In file order, rows that were dropped left out. Packing changes none of them. A preference pair is two.
  std::int64_t num_examples() const;
  Example example(std::int64_t index) const;
  /// Of the same, without reading ids.
  std::int64_t example_tokens(std::int64_t index) const;
  std::int64_t example_targets(std::int64_t index) const;

  bool packed() const;
  bool has_pairs() const;
  /// Trainable rows of an epoch: rows of the files, each as often as its file's weight says, or the packed rows of up
  /// to max_length positions made of them. A preference pair is one row of two documents, the chosen one first.
  std::int64_t num_rows() const;
  /// Positions and documents of a row.
  std::int64_t row_tokens(std::int64_t row) const;
  std::int64_t row_documents(std::int64_t row) const;
  std::int64_t row_supervised_tokens(std::int64_t row) const;
  static constexpr std::int64_t kWhole = INT64_MAX;
  /// Appends the row, or its first so many positions, to a micro-batch, which is empty at first or made of such rows.
  void append_row(std::int64_t row, MicroBatch& batch, std::int64_t positions = kWhole) const;
  /// "PATH:LINE" of the row's (first) source.
  std::string source(std::int64_t row) const;

 private:
  Dataset();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Which rows each optimizer step takes. Depends on (seed, epoch) alone when shuffled; any step is found in O(1) memory
/// and time in the number of steps before it. The data set must outlive it, and stay where it is.
class BatchSchedule {
 public:
  struct Options {
    bool shuffle = true;
    std::uint64_t seed = 42;
    std::int64_t micro_batch_rows = 8, accumulation = 1;
  };
  BatchSchedule(const Dataset& dataset, Options options);

  std::int64_t steps_per_epoch() const;
  /// Bounds for any micro-batch of any epoch: the sum over the longest rows.
  std::int64_t token_capacity() const { return token_capacity_; }
  std::int64_t document_capacity() const { return document_capacity_; }
  /// Micro-batches of optimizer step `step`, from 0; the last step of an epoch takes what is left.
  /// Of each row the first so many positions.
  StepBatch step(std::int64_t step, std::int64_t positions = Dataset::kWhole) const;
  /// The same into a batch whose memory is used again.
  void step(std::int64_t step, StepBatch& batch, std::int64_t positions = Dataset::kWhole) const;
  /// The rows of that step in their order, without reading them.
  std::vector<std::int64_t> rows(std::int64_t step) const;

 private:
  /// Calls use(place in the step, row) for each row of the step, in order.
  template <typename Function>
  void for_each_row(std::int64_t step, Function&& use) const;

  const Dataset* dataset_;
  Options options_;
  std::int64_t rows_per_step_ = 0, token_capacity_ = 0, document_capacity_ = 0;
};

}  // namespace heddle
