#include <cstdio>
#include <iostream>
#include <iterator>

#include "base/error.h"
#include "base/threads.h"
#include "cli/commands.h"
#include "data/tokenizer.h"
#include "formats/files.h"
#include "formats/json.h"

namespace heddle::cli {
namespace {

using Ids = std::vector<std::int32_t>;

struct Options {
  std::string model, file, strings;
  bool lines = false, decode = false, json = false, add_special_tokens = true;
};

std::string read_input(const std::string& file) {
  if (!file.empty()) return read_text_file(file, std::size_t{16} << 30);
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::size_t start = 0;
  while (start < text.size()) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    lines.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return lines;
}

Ids ids_of(const Json& value, const std::string& where) {
  if (!value.is_array()) fail("{}: expected an array of ids", where);
  Ids ids;
  for (const auto& item : value) {
    if (!item.is_number_integer()) fail("{}: {} is no id", where, json_excerpt(item));
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
    if (used != word.size() || id < 0) fail("{}: {} is no id", where, text_excerpt(word));
    ids.push_back(id);
    at = end;
  }
  return ids;
}

void print(const Json& document) {
  const std::string text = document.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
}

void print_ids(const Ids& ids) {
  std::string text;
  for (const auto id : ids) text += (text.empty() ? "" : " ") + std::to_string(id);
  std::puts(text.c_str());
}

void print_many(const std::vector<std::string>& texts, const Tokenizer& tokenizer, const Options& options) {
  std::vector<Ids> all(texts.size());
  parallel_for(static_cast<std::int64_t>(texts.size()), [&](std::int64_t i, int) {
    const auto at = static_cast<std::size_t>(i);
    all[at] = tokenizer.encode(texts[at], options.add_special_tokens);
  });
  if (options.json) return print(all);
  for (const auto& ids : all) print_ids(ids);
}

void decode(const Tokenizer& tokenizer, const Options& options) {
  if (options.strings.empty()) {
    const std::string text = tokenizer.decode(parse_ids(read_input(options.file), "ids"), false);
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
  if (!options.strings.empty()) {
    std::vector<std::string> texts;
    for (const auto& item : read_json_file(options.strings)) {
      if (!item.is_string()) fail("{}: {} is no string", options.strings, json_excerpt(item));
      texts.push_back(item.get<std::string>());
    }
    return print_many(texts, *tokenizer, options);
  }
  const std::string text = read_input(options.file);
  if (options.lines) return print_many(split_lines(text), *tokenizer, options);
  const Ids ids = tokenizer->encode(text, options.add_special_tokens);
  options.json ? print(ids) : print_ids(ids);
}

}  // namespace

void add_tokenize(CLI::App& program, Outcome&) {
  auto* command = program.add_subcommand("tokenize", "ids of a file, and back");
  auto options = std::make_shared<Options>();
  command->add_option("MODEL", options->model, "model folder, tokenizer.json, or `bytes`")->required();
  command->add_option("FILE", options->file, "text, read byte for byte (default: standard input)");
  command->add_flag("--lines", options->lines, "each line by itself");
  command->add_option("--strings", options->strings, "a JSON array of strings (with --decode: of arrays of ids)");
  command->add_flag("--decode", options->decode, "from ids to text, special tokens kept");
  command->add_option("--add_special_tokens", options->add_special_tokens,
                      "what the tokenizer's post-processor adds (default: true)");
  command->add_flag("--json", options->json, "print one JSON document");
  command->callback([options] { tokenize(*options); });
}

}  // namespace heddle::cli
