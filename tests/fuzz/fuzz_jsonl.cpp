// Any bytes as a data file: loading gives rows that hold together, or one Error; and a row is never read otherwise than
// the general JSON parser reads it. The first byte chooses format and options. Run with -close_fd_mask=2: warnings.
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/threads.h"
#include "data/dataset.h"
#include "data/row_parser.h"
#include "data/row_records.h"
#include "formats/json.h"

namespace {

using namespace heddle;

constexpr std::int32_t kVocab = 258;

/// Bytes are ids; 256 ends a text.
class ByteTokenizer : public Tokenizer {
 public:
  std::vector<std::int32_t> encode(std::string_view text, bool) const override {
    std::vector<std::int32_t> ids;
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  std::string decode(std::span<const std::int32_t>, bool) const override { return {}; }
  std::int32_t vocab_size() const override { return kVocab; }
  std::optional<std::int32_t> token_to_id(std::string_view) const override { return std::nullopt; }
  std::string id_to_token(std::int32_t) const override { return {}; }
  std::optional<std::int32_t> bos_id() const override { return 257; }
  std::optional<std::int32_t> eos_id() const override { return 256; }
  std::optional<bool> add_bos_token() const override { return std::nullopt; }
  std::optional<bool> add_eos_token() const override { return std::nullopt; }
  std::string fingerprint() const override { return "bytes"; }
};

void require(bool condition) {
  if (!condition) std::abort();
}

/// What parse_row accepts, parse_json accepts with the same content.
void compare_with_parse_json(const Record& record) {
  std::optional<Row> row;
  try {
    row = parse_row(record, {.vocab_size = kVocab});
  } catch (const RowError& error) {
    const std::string_view text = error.what();
    require(!text.empty() && text.find('\n') == std::string_view::npos && error.line() >= record.line);
    return;
  }
  const Json value = parse_json(record.text, "record", 64);
  require(value.is_object());
  if (row->text) require(value.at("text").get<std::string>() == *row->text);
  if (row->input_ids) require(value.at("input_ids").get<std::vector<std::int32_t>>() == *row->input_ids);
  if (row->pair && row->format == RowFormat::pair) require(value.at("prompt") == row->pair->prompt);
  if (row->conversation) {
    require(!row->conversation->messages.empty());
    require(row->conversation->weights.size() == row->conversation->messages.size());
  }
  if (row->labels) require(value.at("labels").get<std::vector<std::int32_t>>() == *row->labels);
}

/// The records of a file are the same whole and in windows that grow by `step` bytes.
void compare_windows(std::string_view content, DataFormat format, std::size_t step) {
  std::vector<std::string> whole, cut;
  const auto take = [](RecordReader& reader, std::vector<std::string>& records) {
    for (Record record; reader.next(record);)
      records.push_back(std::to_string(record.line) + " " + std::string(record.text));
  };
  const auto note = [](const RowError& error, std::vector<std::string>& records) {
    records.push_back(std::to_string(error.line()) + "! " + error.what());
  };
  try {
    RecordReader reader(content, format);
    take(reader, whole);
  } catch (const RowError& error) {
    note(error, whole);
  }
  try {
    RecordReader reader(format);
    std::size_t begin = 0, end = 0;
    while (end < content.size()) {
      end = std::min(end + step, content.size());
      reader.feed(content.substr(begin, end - begin), end == content.size());
      take(reader, cut);
      begin += reader.used();
    }
  } catch (const RowError& error) {
    note(error, cut);
  }
  require(whole == cut);
}

void check_rows(const Dataset& data, const DatasetOptions& options) {
  std::int64_t targets = 0, expected_targets = 0;
  for (std::int64_t i = 0; i < data.num_examples(); ++i) {
    const Example example = data.example(i);
    require(example.labels.size() == example.input_ids.size() && example.labels.size() >= 2);
    for (std::size_t t = 1; t < example.labels.size(); ++t) expected_targets += example.labels[t] != -100 ? 1 : 0;
  }
  for (std::int64_t i = 0; i < data.num_rows(); ++i) {
    MicroBatch batch;
    data.append_row(i, batch);
    require(batch.tokens() == data.row_tokens(i) && batch.tokens() >= 1 && batch.tokens() <= options.max_length);
    require(batch.document_starts.back() == batch.tokens());
    require(static_cast<std::int64_t>(batch.document_starts.size()) == data.row_documents(i) + 1);
    std::int64_t supervised = 0;
    for (std::size_t t = 0; t < batch.labels.size(); ++t) {
      require(batch.input_ids[t] >= 0 && batch.input_ids[t] < kVocab);
      require(batch.labels[t] == -100 || (batch.labels[t] >= 0 && batch.labels[t] < kVocab));
      supervised += batch.labels[t] != -100 ? 1 : 0;
    }
    require(supervised == batch.supervised_tokens && supervised == data.row_supervised_tokens(i));
    targets += supervised;
  }
  require(targets == expected_targets);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  static const std::string kFolder = [] {
    const auto folder = std::filesystem::temp_directory_path() / ("fuzz_jsonl." + std::to_string(::getpid()));
    std::filesystem::create_directories(folder);
    set_threads(1);
    return folder.string() + "/";
  }();
  if (size == 0) return 0;
  const unsigned choice = bytes[0];
  const std::string_view content(reinterpret_cast<const char*>(bytes) + 1, size - 1);

  const std::string name = (choice & 3) == 0 ? "f.json" : (choice & 3) == 1 ? "f.txt" : "f.jsonl";
  try {
    RecordReader reader(content, data_format(name));
    for (Record record; reader.next(record);) compare_with_parse_json(record);
  } catch (const RowError&) {
  }

  if (content.size() < 4096) compare_windows(content, data_format(name), 1 + choice % 13);

  DatasetOptions options;
  options.files = {{kFolder + name, 1.0}};
  std::ofstream(options.files[0].path, std::ios::binary) << content;
  options.max_length = 1 + (choice >> 5);
  options.vocab_size = kVocab;
  if ((choice & 4) != 0) options.packing = (choice & 8) != 0;
  options.skip_bad_rows = (choice & 16) != 0;
  const ByteTokenizer tokenizer;
  try {
    check_rows(Dataset::load(options, &tokenizer), options);
  } catch (const Error& error) {
    require(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}
