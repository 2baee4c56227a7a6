#include "data/row_records.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "data/data_stream.h"

namespace heddle {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::string_view kSpace = " \t\r\n";

bool is_space(char c) { return kSpace.find(c) != std::string_view::npos; }

std::int64_t count_lines(std::string_view text) { return std::count(text.begin(), text.end(), '\n'); }

}  // namespace

DataFormat data_format(const std::filesystem::path& path) {
  const bool is_compressed = compression_of(path) != Compression::none;
  std::string extension = (is_compressed ? path.stem() : path).extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (extension == ".jsonl" || extension == ".ndjson") return DataFormat::json_lines;
  if (extension == ".json") return DataFormat::json;
  if (extension == ".parquet") {
    if (is_compressed) fail("{}: Parquet is compressed within; expected .parquet alone", path.string());
    return DataFormat::parquet;
  }
  constexpr std::array<std::string_view, 10> kNoText = {".gz",    ".zst", ".xz",  ".bz2",         ".zip",
                                                        ".arrow", ".npy", ".bin", ".safetensors", ".gguf"};
  if (std::find(kNoText.begin(), kNoText.end(), extension) != kNoText.end()) {
    fail(
        "{}: {} files are not supported; expected .jsonl, .json, .parquet or plain text, all but Parquet also as .gz "
        "or .zst",
        path.string(), extension);
  }
  return DataFormat::plain_text;
}

void RecordReader::feed(std::string_view window, bool is_last) {
  window_ = window;
  is_last_ = is_last;
  at_ = 0;
}

bool RecordReader::next(Record& record) {
  if (state_ == State::start && !start()) return false;
  switch (state_) {
    case State::lines: return next_line(record);
    case State::elements: return next_element(record);
    case State::objects: return next_object(record);
    case State::after_array: return after_array();
    case State::rest: return rest(record);
    case State::start:
    case State::end: break;
  }
  return false;
}

/// Finds out what the file is made of. False if the window does not tell.
bool RecordReader::start() {
  if (window_.size() < kByteOrderMark.size() && !is_last_) return false;
  if (!std::exchange(has_begun_, true) && window_.starts_with(kByteOrderMark)) at_ = kByteOrderMark.size();
  if (format_ == DataFormat::json_lines) {
    state_ = State::lines;
    return true;
  }
  if (format_ == DataFormat::json) skip_space();
  if (at_ == window_.size()) {
    if (is_last_) state_ = State::end;
    return false;
  }
  if (format_ == DataFormat::plain_text) {
    state_ = State::rest;
  } else if (window_[at_] == '{') {
    state_ = State::objects;
  } else if (window_[at_] == '[') {
    ++at_;
    state_ = State::elements;
  } else {
    throw RowError(line_, "a JSON file starts with neither [ nor {; expected an array of objects, or objects");
  }
  return true;
}

bool RecordReader::next_line(Record& record) {
  while (at_ < window_.size()) {
    std::size_t end = window_.find('\n', at_);
    if (end == std::string_view::npos) {
      if (!is_last_) return false;
      end = window_.size();
    }
    const std::string_view line = window_.substr(at_, end - at_);
    at_ = std::min(end + 1, window_.size());
    const std::int64_t number = line_++;
    if (line.find_first_not_of(kSpace) != std::string_view::npos) {
      record = {line, number};
      return true;
    }
  }
  return false;
}

/// Moves on to the first byte, outside of strings, for which ends(byte, open brackets) holds; false where the window
/// has none. Brackets are only counted, not matched: the parser of the record does that.
template <typename Ends>
bool RecordReader::move_to(Ends ends) {
  std::int64_t depth = 0;
  bool in_string = false;
  for (; at_ < window_.size(); ++at_) {
    const char c = window_[at_];
    if (c == '\n') ++line_;
    if (in_string) {
      if (c == '\\' && at_ + 1 < window_.size() && window_[at_ + 1] != '\n') ++at_;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (ends(c, depth)) {
      return true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

bool RecordReader::next_element(Record& record) {
  skip_space();
  const bool closes = at_ < window_.size() && window_[at_] == ']' && first_element_;
  const std::size_t begin = at_;
  const std::int64_t begin_line = line_;
  if (!move_to([](char c, std::int64_t depth) { return depth == 0 && (c == ',' || c == ']'); })) {
    if (is_last_) throw RowError(begin_line, "the array that the file holds is not closed; expected , or ]");
    at_ = begin;  // again, when the window is longer
    line_ = begin_line;
    return false;
  }
  first_element_ = false;
  record = {window_.substr(begin, at_ - begin), begin_line};
  if (window_[at_++] == ']') state_ = State::after_array;
  return closes ? after_array() : true;
}

bool RecordReader::next_object(Record& record) {
  skip_space();
  if (at_ == window_.size()) {
    if (is_last_) state_ = State::end;
    return false;
  }
  if (window_[at_] != '{') throw RowError(line_, "something follows the rows; expected {, or the end of the file");
  const std::size_t begin = at_;
  const std::int64_t begin_line = line_;
  if (move_to([](char c, std::int64_t depth) { return depth == 1 && (c == '}' || c == ']'); })) {
    ++at_;
  } else if (!is_last_) {
    at_ = begin;  // again, when the window is longer
    line_ = begin_line;
    return false;
  }
  record = {window_.substr(begin, at_ - begin), begin_line};
  return true;
}

bool RecordReader::after_array() {
  skip_space();
  if (at_ < window_.size()) throw RowError(line_, "something follows the array; expected the end of the file");
  if (is_last_) state_ = State::end;
  return false;
}

bool RecordReader::rest(Record& record) {
  if (!is_last_) return false;
  record = {window_.substr(at_), line_};
  at_ = window_.size();
  state_ = State::end;
  return true;
}

void RecordReader::skip_space() {
  for (; at_ < window_.size() && is_space(window_[at_]); ++at_) {
    if (window_[at_] == '\n') ++line_;
  }
}

std::optional<std::size_t> find_invalid_utf8(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  std::size_t i = 0;
  while (i < text.size()) {
    const unsigned char lead = byte(i);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    // The second byte's range shuts out overlong forms, surrogates and code points above U+10FFFF.
    const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (lead < 0xC2 || lead > 0xF4 || text.size() - i < length) return i;
    const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (byte(i + 1) < low || byte(i + 1) > high) return i;
    for (std::size_t k = 2; k < length; ++k) {
      if ((byte(i + k) & 0xC0) != 0x80) return i;
    }
    i += length;
  }
  return std::nullopt;
}

void check_utf8(const Record& record) {
  const auto bad = find_invalid_utf8(record.text);
  if (!bad) return;
  const std::string_view before = record.text.substr(0, *bad);
  const std::size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  throw RowError(record.line + count_lines(before),
                 fmt::format("byte 0x{:02X} at column {} is not valid UTF-8",
                             static_cast<unsigned char>(record.text[*bad]), *bad - line_start + 1));
}

}  // namespace heddle
