#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iterator>
#include <optional>

#include "base/error.h"
#include "base/threads.h"
#include "cli/commands.h"
#include "data/row_encoder.h"
#include "data/row_records.h"
#include "data/text_encoder.h"
#include "data/tokenizer.h"
#include "formats/file_reader.h"
#include "formats/files.h"
#include "formats/json.h"

namespace heddle::cli {
namespace {

using Ids = std::vector<std::int32_t>;

struct Options {
  std::string model, file, strings;
  bool lines = false, decode = false, json = false, add_special_tokens = true;
};

constexpr std::size_t kInputPiece = std::size_t{1} << 20;

/// Fewer bytes only at the end.
std::size_t read_standard_input(std::span<char> target) {
  const std::size_t count = std::fread(target.data(), 1, target.size(), stdin);
  if (std::ferror(stdin) != 0) fail("standard input: cannot be read: {}", std::strerror(errno));
  return count;
}

std::string read_input(const std::string& file) {
  if (!file.empty()) return read_text_file(file, std::size_t{16} << 30);
  std::string text;
  std::size_t held = 0;
  do {
    text.resize(held + kInputPiece);
    held += read_standard_input(std::span(text).subspan(held));
  } while (held == text.size());
  text.resize(held);
  return text;
}

/// A file or standard input, piece by piece.
class Input {
 public:
  explicit Input(const std::string& path) {
    if (!path.empty()) file_.emplace(path);
  }
  std::string name() const { return file_ ? file_->path() : "standard input"; }
  /// Fewer bytes only at the end.
  std::size_t read(std::span<char> target) {
    if (!file_) return read_standard_input(target);
    target = target.first(static_cast<std::size_t>(std::min<std::uint64_t>(target.size(), file_->size() - at_)));
    file_->read(at_, target);
    at_ += target.size();
    if (at_ == file_->size()) file_->check_unchanged();
    return target.size();
  }

 private:
  std::optional<FileReader> file_;
  std::uint64_t at_ = 0;
};

/// Prints ids as they come: JSON arrays, in a list or alone, or lines of numbers.
class IdPrinter {
 public:
  explicit IdPrinter(bool json) : json_(json) {}

  void open_list() {
    if (json_) text_ += '[';
  }
  void close_list() { finish(json_ ? "]\n" : ""); }
  void open() {
    if (json_) text_ += needs_comma_ ? ",[" : "[";
    needs_comma_ = false;
  }
  void add(std::span<const std::int32_t> ids) {
    for (const std::int32_t id : ids) {
      if (needs_comma_) text_ += json_ ? ',' : ' ';
      fmt::format_to(std::back_inserter(text_), "{}", id);
      needs_comma_ = true;
    }
    if (text_.size() >= kPiece) flush();
  }
  void close() {
    text_ += json_ ? "]" : "\n";
    needs_comma_ = json_;
  }
  void finish(std::string_view end) {
    text_ += end;
    flush();
  }

 private:
  static constexpr std::size_t kPiece = std::size_t{1} << 20;
  void flush() {
    std::fwrite(text_.data(), 1, text_.size(), stdout);
    text_.clear();
  }
  bool json_, needs_comma_ = false;
  std::string text_;
};

Ids ids_of(const Json& value, const std::string& where) {
  if (!value.is_array()) fail("{}: {} is no array of ids", where, json_excerpt(value));
  Ids ids;
  for (const auto& item : value) {
    const bool is_id = item.is_number_unsigned() && item.get<std::uint64_t>() <= INT32_MAX;
    if (!is_id) fail("{}: {} is no id; expected a whole number from 0 to {}", where, json_excerpt(item), INT32_MAX);
    ids.push_back(item.get<std::int32_t>());
  }
  return ids;
}

/// Ids as JSON, or separated by white space or commas.
Ids parse_ids(const std::string& text, const std::string& where) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && text[first] == '[') return ids_of(parse_json(text, where), where);
  Ids ids;
  std::size_t at = 0;
  while ((at = text.find_first_not_of(" \t\r\n,", at)) != std::string::npos) {
    const std::size_t end = std::min(text.find_first_of(" \t\r\n,", at), text.size());
    const std::string word = text.substr(at, end - at);
    std::size_t used = 0;
    int id = -1;
    try {
      id = std::stoi(word, &used);
    } catch (const std::exception&) {
      used = 0;
    }
    if (used != word.size() || id < 0) {
      fail("{}: {} is no id; expected a whole number from 0 to {}", where, text_excerpt(word), INT32_MAX);
    }
    ids.push_back(id);
    at = end;
  }
  return ids;
}

void print(const Json& document) {
  const std::string text = document.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
}

void print_many(std::span<const std::string_view> texts, const Tokenizer& tokenizer, const Options& options,
                IdPrinter& printer) {
  std::vector<Ids> all(texts.size());
  std::vector<std::exception_ptr> failures(texts.size());
  parallel_for(static_cast<std::int64_t>(texts.size()), [&](std::int64_t i, int) {
    const auto at = static_cast<std::size_t>(i);
    try {
      all[at] = tokenizer.encode(texts[at], options.add_special_tokens);
    } catch (...) {  // parallel bodies must not throw
      failures[at] = std::current_exception();
    }
  });
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (failures[i]) std::rethrow_exception(failures[i]);
    printer.open();
    printer.add(all[i]);
    printer.close();
  }
}

void tokenize_strings(const Tokenizer& tokenizer, const Options& options) {
  std::vector<std::string> strings;
  for (const auto& item : read_json_file(options.strings)) {
    if (!item.is_string()) fail("{}: {} is no string", options.strings, json_excerpt(item));
    strings.push_back(item.get<std::string>());
  }
  IdPrinter printer(options.json);
  printer.open_list();
  print_many(std::vector<std::string_view>(strings.begin(), strings.end()), tokenizer, options, printer);
  printer.close_list();
}

/// Lines as they come: of the input only a window is in memory.
void tokenize_lines(const Tokenizer& tokenizer, const Options& options, Input& input) {
  constexpr std::size_t kWindow = std::size_t{4} << 20;
  IdPrinter printer(options.json);
  printer.open_list();
  std::string window;
  std::size_t wanted = kWindow;
  std::int64_t line = 1;
  for (bool is_last = false; !is_last;) {
    const std::size_t held = window.size();
    window.resize(wanted);
    window.resize(held + input.read(std::span(window).subspan(held)));
    is_last = window.size() < wanted;
    const std::size_t end = is_last ? window.size() : window.rfind('\n') + 1;  // npos + 1 is 0
    std::vector<std::string_view> lines;
    for (std::size_t start = 0; start < end;) {
      const std::size_t stop = std::min(window.find('\n', start), window.size());
      lines.push_back(std::string_view(window).substr(start, stop - start));
      check_utf8({lines.back(), line++});
      start = stop + 1;
    }
    print_many(lines, tokenizer, options, printer);
    window.erase(0, end);
    wanted = std::max(kWindow, 2 * window.size());
  }
  printer.close_list();
}

void tokenize_text(const Tokenizer& tokenizer, const Options& options, Input& input) {
  constexpr std::size_t kShort = std::size_t{256} << 10;
  std::string start(kShort, '\0');
  start.resize(input.read(start));
  IdPrinter printer(options.json);
  printer.open();
  if (start.size() < kShort) {
    check_utf8({start, 1});
    printer.add(tokenizer.encode(start, options.add_special_tokens));
  } else {
    const SurroundingIds around = options.add_special_tokens ? find_surrounding_ids(tokenizer) : SurroundingIds{};
    const ReadText rest = [&](std::span<char> target) { return input.read(target); };
    printer.add(around.leading);
    encode_text(tokenizer, read_in_turn(read_from(start), rest), [&](auto ids) { printer.add(ids); });
    printer.add(around.trailing);
  }
  printer.close();
  printer.finish(options.json ? "\n" : "");
}

void decode(const Tokenizer& tokenizer, const Options& options) {
  if (options.strings.empty()) {
    const std::string text = tokenizer.decode(
        parse_ids(read_input(options.file), options.file.empty() ? "standard input" : options.file), false);
    if (options.json) return print(text);
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::puts("");
    return;
  }
  Json texts = Json::array();
  for (const auto& ids : read_json_file(options.strings))
    texts.push_back(tokenizer.decode(ids_of(ids, options.strings), false));
  if (options.json) return print(texts);
  for (const auto& text : texts) std::puts(text.get<std::string>().c_str());
}

void tokenize(const Options& options) {
  const auto tokenizer = options.model == "bytes" ? Tokenizer::bytes() : Tokenizer::load(options.model);
  if (options.decode) return decode(*tokenizer, options);
  if (!options.strings.empty()) return tokenize_strings(*tokenizer, options);
  Input input(options.file);
  try {
    options.lines ? tokenize_lines(*tokenizer, options, input) : tokenize_text(*tokenizer, options, input);
  } catch (const RowError& error) {
    fail("{}:{}: {}", input.name(), error.line(), error.what());
  }
}

}  // namespace

void add_tokenize(CLI::App& program, Outcome&) {
  auto* command = program.add_subcommand("tokenize", "ids of a file, and back");
  auto options = std::make_shared<Options>();
  command->add_option("MODEL", options->model, "model folder, GGUF file, tokenizer.json, or `bytes`")->required();
  auto* file = command->add_option("FILE", options->file, "text, read byte for byte (default: standard input)");
  auto* lines = command->add_flag("--lines", options->lines, "each line by itself");
  command->add_option("--strings", options->strings, "a JSON array of strings (with --decode: of arrays of ids)")
      ->excludes(file)
      ->excludes(lines);
  command->add_flag("--decode", options->decode, "from ids to text, special tokens kept");
  command->add_option("--add_special_tokens", options->add_special_tokens,
                      "what the tokenizer's post-processor adds (default: true)");
  command->add_flag("--json", options->json, "print one JSON document");
  command->callback([options] { tokenize(*options); });
}

}  // namespace heddle::cli
