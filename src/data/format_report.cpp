#include "data/format_report.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "data/row_parser.h"

namespace heddle {
namespace {

/// A key about labels, and the rows that it is for.
struct LabelKey {
  std::string_view name, value, rows;
  bool is_set;
  std::vector<RowFormat> formats;
};

std::vector<LabelKey> label_keys(const LabelRules& rules, bool has_chat_template) {
  std::vector conversations = {RowFormat::messages, RowFormat::sharegpt, RowFormat::chat_pair};
  if (has_chat_template) conversations.push_back(RowFormat::alpaca);  // else they are texts
  const std::vector pairs = {RowFormat::pair, RowFormat::chat_pair, RowFormat::alpaca};
  return {{"train_on", "last", "conversations", rules.last_only, conversations},
          {"assistant_only_loss", "true", "conversations", rules.assistant_only && !rules.last_only, conversations},
          {"completion_only_loss", "true", "prompts and completions", rules.completion_only == true, pairs}};
}

std::string count_rows(std::int64_t rows, std::string_view format) {
  return fmt::format("{} of {}", format_count(static_cast<std::uint64_t>(rows), "row"), format);
}

/// "3 rows of texts, 1 row of token ids": those of formats that are not among `formats`; "" if there is none.
std::string name_others(const FileFormats& file, std::span<const RowFormat> formats) {
  std::vector<std::string> others;
  for (const auto& [format, rows] : file.notes->formats) {
    const bool is_meant = std::any_of(formats.begin(), formats.end(),
                                      [&name = format](RowFormat meant) { return describe(meant) == name; });
    if (!is_meant) others.push_back(count_rows(rows, format));
  }
  return fmt::format("{}", fmt::join(others, ", "));
}

bool has_any(const FileFormats& file, std::span<const RowFormat> formats) {
  return std::any_of(formats.begin(), formats.end(),
                     [&](RowFormat format) { return file.notes->formats.contains(std::string(describe(format))); });
}

}  // namespace

void report_formats(std::span<const FileFormats> files) {
  constexpr std::array kPlain = {RowFormat::text, RowFormat::input_ids};
  for (const auto& [path, notes] : files) {
    const bool is_plain = notes->formats.empty() || (notes->formats.size() == 1 && has_any({path, notes}, kPlain));
    if (!is_plain) note("{}: {}", path, name_others({path, notes}, {}));
    if (!notes->ignored_fields.empty()) note("{}: fields not used: {}", path, fmt::join(notes->ignored_fields, ", "));
  }
}

void check_label_keys(std::span<const FileFormats> files, const LabelRules& rules, bool has_chat_template) {
  const auto first =
      std::find_if(files.begin(), files.end(), [](const auto& file) { return !file.notes->formats.empty(); });
  for (const LabelKey& key : label_keys(rules, has_chat_template)) {
    if (!key.is_set || first == files.end()) continue;
    const auto concerns = [&](const FileFormats& file) { return has_any(file, key.formats); };
    if (std::none_of(files.begin(), files.end(), concerns)) {
      const char* more = files.size() > 1 ? ", and no other file has any" : "";
      fail("{} is {}, which is for {}; {} holds {}{}", key.name, key.value, key.rows, first->path,
           name_others(*first, {}), more);
    }
    for (const FileFormats& file : files) {
      const std::string others = name_others(file, key.formats);
      if (!others.empty()) note("{}: {} changes nothing for {}", file.path, key.name, others);
    }
  }
}

}  // namespace heddle
