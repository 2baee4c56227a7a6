#include "data/dataset.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "data/data_files.h"
#include "data/dataset_file.h"
#include "data/format_report.h"
#include "data/mixture.h"
#include "data/packing.h"

namespace heddle {
namespace {

constexpr std::size_t kRowsNamed = 100;
constexpr std::int32_t kIgnoredLabel = -100;

/// One data file: its rows, and which of them are left out of training.
struct Source {
  std::string path;
  double weight;
  TokenTable table;
  std::vector<std::int64_t> left_out;  // indices of table rows, ascending
  std::int64_t first_example = 0;      // examples of the files before it

  std::int64_t num_examples() const { return table.num_rows() - static_cast<std::int64_t>(left_out.size()); }
  TokenRow row(std::int64_t index) const { return table.row(index); }
  /// The table row of the example `index` of this file.
  std::int64_t row_of_example(std::int64_t index) const {
    // left_out[k] - k examples come before the row left_out[k], and k rows before it are left out.
    std::size_t low = 0, high = left_out.size();
    while (low < high) {
      const std::size_t middle = (low + high) / 2;
      if (left_out[middle] - static_cast<std::int64_t>(middle) <= index) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return index + static_cast<std::int64_t>(low);
  }
  std::string place(std::int64_t line) const { return fmt::format("{}:{}", path, line); }
};

/// The ids of a row that are used: so many, from number `first` on.
struct Cut {
  std::int64_t first, length;
};

/// A run of positions of one document: token first_token + i is the input of position i, the next one its label.
struct Piece {
  const Source* source;
  TokenRow row;
  std::int64_t first_token, positions;
};

std::int64_t count_targets(const Piece& piece) {
  if (piece.row.label_offset < 0) return piece.positions;
  if (piece.positions == piece.row.length - 1) return piece.row.targets;
  std::vector<std::int32_t> labels(static_cast<std::size_t>(piece.positions));
  piece.source->table.read_labels(piece.row, piece.first_token + 1, labels);
  return piece.positions - std::count(labels.begin(), labels.end(), kIgnoredLabel);
}

std::string name_rows(const std::vector<std::string>& places) {
  const std::size_t named = std::min(places.size(), kRowsNamed);
  std::string out =
      fmt::format("{}", fmt::join(places.begin(), places.begin() + static_cast<std::ptrdiff_t>(named), ", "));
  if (named < places.size()) out += fmt::format(" and {} more", places.size() - named);
  return out;
}

/// What decides how conversations become ids and labels, besides the tokenizer.
std::string conversation_key(const DatasetOptions& options) {
  const LabelRules& labels = options.labels;
  std::string key = fmt::format("{} {} {} {}", labels.assistant_only, labels.last_only,
                                labels.completion_only.value_or(true), options.add_bos.value_or(false));
  if (options.chat_template == nullptr) return key;
  key += " " + options.chat_template->fingerprint();
  if (options.chat_template->reads_clock()) {  // what was rendered yesterday is not today's
    const char* epoch = std::getenv("SOURCE_DATE_EPOCH");
    key += fmt::format(" {}", epoch != nullptr ? epoch : fmt::format("day {}", std::time(nullptr) / 86400));
  }
  return key;
}

std::string rows_are(std::size_t count) { return count == 1 ? "1 row is" : fmt::format("{} rows are", count); }

}  // namespace

struct Dataset::Impl {
  std::int64_t max_length = 0;
  std::optional<std::int64_t> max_prompt_length;
  bool keeps_end = false;
  bool packed = false;
  std::int64_t examples_of_row = 1;  // 2: preference pairs
  std::vector<Source> sources;
  std::int64_t num_examples = 0;
  std::vector<MixturePass> example_passes;  // examples of an epoch
  // When packed: first the rows cut from the stream of all text, then the bins of whole rows.
  std::vector<MixturePass> stream_passes;  // positions of the stream
  std::int64_t stream_rows = 0;
  std::vector<std::int64_t> whole_rows;  // indices of examples
  Bins bins;

  explicit Impl(const DatasetOptions& options);
  void load_sources(const DatasetOptions& options, const Tokenizer* tokenizer);
  void leave_rows_out(bool skip_bad_rows);
  void mix_sources();
  void pack();
  void report_packing(std::span<const std::int64_t> sizes) const;

  std::pair<const Source*, TokenRow> find_example(std::int64_t index) const;
  Cut cut(const TokenRow& row) const;
  Piece whole_piece(const Source& source, const TokenRow& row) const {
    const auto [first, length] = cut(row);
    return {&source, row, first, length - 1};
  }
  std::int64_t num_rows() const { return packed ? stream_rows + bins.count() : count_items(example_passes); }
  /// The number of the (first) example of the row that is number `index` of an epoch.
  std::int64_t example_of_epoch(std::int64_t index) const {
    const MixturePass& pass = find_pass(example_passes, index);
    return sources[pass.source].first_example + pass.item(index) * examples_of_row;
  }
  template <typename Function>
  void for_each_piece(std::int64_t row, Function&& use) const;
};

Dataset::Impl::Impl(const DatasetOptions& options)
    : max_length(options.max_length),
      max_prompt_length(options.max_prompt_length),
      keeps_end(options.keeps_end),
      examples_of_row(options.preference ? 2 : 1) {
  if (max_length < 1) fail("max_length is {}; expected 1 or more", max_length);
  if (options.files.empty()) fail("no data file is named");
  if (options.vocab_size < 1) fail("vocab_size is {}; expected 1 or more", options.vocab_size);
  for (const auto& file : options.files) {
    if (!(file.weight > 0)) fail("{}: weight is {}; expected more than 0", file.path, file.weight);
  }
  check_columns(options.columns);
}

void Dataset::Impl::load_sources(const DatasetOptions& options, const Tokenizer* tokenizer) {
  std::optional<RowEncoder> encoder;
  std::optional<ConversationEncoder> conversations;
  if (tokenizer != nullptr) {
    encoder.emplace(*tokenizer, options.add_bos, options.add_eos);
    conversations.emplace(*encoder, options.chat_template, options.labels);
  }
  DataFileOptions file_options;
  file_options.encoder = encoder ? &*encoder : nullptr;
  file_options.conversations = conversations ? &*conversations : nullptr;
  file_options.rules = {options.vocab_size, options.columns, options.chat_template != nullptr, options.preference};
  file_options.conversation_key = conversation_key(options);
  file_options.skip_bad_rows = options.skip_bad_rows;
  file_options.cache_folder = options.cache_folder;
  for (const auto& file : options.files) {
    for (const std::string& path : find_data_files(file.path)) {
      Source source{path, file.weight, load_data_file(path, file_options), {}, 0};
      const TableNotes& notes = source.table.notes();
      if (source.table.num_rows() == 0 && notes.bad_rows.empty() && notes.rows_without_targets.empty()) {
        fail("{}: holds no row; expected a text, or rows with text or input_ids", path);
      }
      sources.push_back(std::move(source));
    }
  }
  std::vector<FileFormats> formats;
  for (const Source& source : sources) formats.push_back({source.path, &source.table.notes()});
  report_formats(formats);
  check_label_keys(formats, options.labels, options.chat_template != nullptr);
}

Cut Dataset::Impl::cut(const TokenRow& row) const {
  if (row.kind == RowKind::ids || (row.kind == RowKind::text && packed)) return {0, row.length};
  const std::int64_t first = std::max<std::int64_t>(0, row.prompt - max_prompt_length.value_or(row.prompt));
  const std::int64_t length = std::min(row.length - first, max_length);
  return {keeps_end ? row.length - length : first, length};
}

/// Decides about each row what depends on max_length and packing, and says so.
void Dataset::Impl::leave_rows_out(bool skip_bad_rows) {
  std::vector<std::string> without_targets;
  std::size_t bad = 0;
  std::int64_t truncated = 0, texts = 0, truncated_conversations = 0, conversations = 0;
  for (Source& source : sources) {
    for (const auto& [line, reason] : source.table.notes().bad_rows) {
      warning("{}: {}; the row is skipped", source.place(line), reason);
      ++bad;
    }
    for (const std::int64_t line : source.table.notes().rows_without_targets) {
      without_targets.push_back(source.place(line));
    }
    const auto has_targets = [&](std::int64_t i) {
      const TokenRow row = source.row(i);
      return cut(row).length >= 2 && count_targets(whole_piece(source, row)) > 0;
    };
    for (std::int64_t i = 0; i < source.table.num_rows(); ++i) {
      const TokenRow row = source.row(i);
      const std::int64_t length = cut(row).length;
      if (row.kind == RowKind::text) {
        ++texts;
        truncated += length < row.length ? 1 : 0;
      } else if (row.kind != RowKind::ids) {
        ++conversations;
        truncated_conversations += length < row.length ? 1 : 0;
      } else if (length > max_length + 1) {
        const std::string reason = fmt::format("input_ids has {} ids; expected at most {} (max_length {} + 1)", length,
                                               max_length + 1, max_length);
        if (!skip_bad_rows) fail("{}: {}", source.place(row.line), reason);
        warning("{}: {}; the row is skipped", source.place(row.line), reason);
        source.left_out.push_back(i);
        ++bad;
        continue;
      }
      // Of a pair both answers are left out, or none.
      const std::int64_t other = row.kind == RowKind::chosen ? i + 1 : row.kind == RowKind::rejected ? i - 1 : i;
      if (has_targets(i) && (other == i || has_targets(other))) continue;
      if (row.kind != RowKind::rejected) without_targets.push_back(source.place(row.line));
      source.left_out.push_back(i);
    }
    source.first_example = num_examples;
    num_examples += source.num_examples();
  }
  if (bad > 0) warning("{} skipped (on_bad_row: skip)", rows_are(bad));
  const std::string why = "all labels are -100, or fewer than 2 tokens are left";
  if (num_examples == 0) {
    if (without_targets.empty()) fail("{}: no row is left: {} skipped as bad", sources[0].path, rows_are(bad));
    fail("no row has a target to learn ({}): {}", why, name_rows(without_targets));
  }
  if (!without_targets.empty()) {
    warning("{} dropped, without a target to learn ({}): {}", rows_are(without_targets.size()), why,
            name_rows(without_targets));
  }
  if (truncated > 0) {
    note("{} of {} texts are longer than max_length {} and are cut to their first {} tokens (packing: true keeps all)",
         truncated, texts, max_length, max_length);
  }
  if (truncated_conversations > 0) {
    const std::string limit =
        fmt::format("max_length {}{}", max_length,
                    max_prompt_length ? fmt::format(" (max_prompt_length {})", *max_prompt_length) : "");
    note("{} of {} {} are longer than {} and are cut to their {} {} tokens", truncated_conversations, conversations,
         examples_of_row == 2 ? "answers with their prompts" : "conversations", limit, keeps_end ? "last" : "first",
         max_length);
  }
}

/// What an epoch takes of each file.
void Dataset::Impl::mix_sources() {
  std::vector<std::int64_t> examples, positions;
  std::vector<double> weights;
  for (const Source& source : sources) {
    examples.push_back(source.num_examples() / examples_of_row);
    positions.push_back(source.table.stream_length());
    weights.push_back(source.weight);
  }
  example_passes = mix(examples, weights);
  stream_passes = mix(positions, weights);
}

void Dataset::Impl::pack() {
  std::vector<std::int64_t> sizes;
  for (std::int64_t i = 0; i < count_items(example_passes); ++i) {
    const std::int64_t example = example_of_epoch(i);
    const TokenRow row = find_example(example).second;
    if (row.kind == RowKind::text) continue;
    whole_rows.push_back(example);
    sizes.push_back(cut(row).length - 1);
  }
  stream_rows = (count_items(stream_passes) + max_length - 1) / max_length;
  bins = first_fit_decreasing(sizes, max_length);
  report_packing(sizes);
}

void Dataset::Impl::report_packing(std::span<const std::int64_t> sizes) const {
  if (sizes.empty()) return;
  const std::int64_t used = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  const double filled =
      100.0 * static_cast<double>(used) / (static_cast<double>(bins.count()) * static_cast<double>(max_length));
  note("packing: {} lie whole in {} of max_length {}, {:.1f}% filled", format_count(sizes.size(), "row"),
       format_count(static_cast<std::uint64_t>(bins.count()), "row"), max_length, filled);
}

std::pair<const Source*, TokenRow> Dataset::Impl::find_example(std::int64_t index) const {
  HEDDLE_CHECK(index >= 0 && index < num_examples);
  const auto after = std::upper_bound(sources.begin(), sources.end(), index,
                                      [](std::int64_t i, const Source& source) { return i < source.first_example; });
  const Source& source = *std::prev(after);
  return {&source, source.row(source.row_of_example(index - source.first_example))};
}

/// Calls use(Piece) for each document of the row, in order.
template <typename Function>
void Dataset::Impl::for_each_piece(std::int64_t row, Function&& use) const {
  HEDDLE_CHECK(row >= 0 && row < num_rows());
  if (!packed) {
    const std::int64_t first = example_of_epoch(row);
    for (std::int64_t example = first; example < first + examples_of_row; ++example) {
      const auto [source, tokens] = find_example(example);
      use(whole_piece(*source, tokens));
    }
    return;
  }
  if (row >= stream_rows) {
    for (const std::int64_t item : bins[row - stream_rows]) {
      const auto [source, tokens] = find_example(whole_rows[static_cast<std::size_t>(item)]);
      use(whole_piece(*source, tokens));
    }
    return;
  }
  // The stream is the positions of all texts end to end; where it is cut, the token before the cut (a label so far) is
  // the first input after it.
  std::int64_t at = row * max_length;
  const std::int64_t end = std::min(at + max_length, count_items(stream_passes));
  while (at < end) {
    const MixturePass& pass = find_pass(stream_passes, at);
    const std::int64_t pass_end = std::min(end, pass.first + pass.count);
    const Source& source = sources[pass.source];
    // The last row that starts at or before: rows taken whole take no place in the stream and start where the next text
    // does.
    std::int64_t position = (at - pass.first) % pass.size;
    std::int64_t index = source.table.find_stream_row(position);
    for (; index < source.table.num_rows() && at < pass_end; ++index) {
      const TokenRow tokens = source.row(index);
      if (tokens.kind != RowKind::text) continue;
      const std::int64_t first = position - tokens.stream_start;
      const std::int64_t positions = std::min(tokens.length - 1 - first, pass_end - at);
      use(Piece{&source, tokens, first, positions});
      at += positions;
      position += positions;
    }
  }
}

Dataset::Dataset() = default;
Dataset::~Dataset() = default;
Dataset::Dataset(Dataset&&) noexcept = default;
Dataset& Dataset::operator=(Dataset&&) noexcept = default;

Dataset Dataset::load(const DatasetOptions& options, const Tokenizer* tokenizer) {
  Dataset dataset;
  dataset.impl_ = std::make_unique<Impl>(options);
  Impl& impl = *dataset.impl_;
  impl.load_sources(options, tokenizer);
  const auto all_text = [](const Source& source) {
    for (std::int64_t i = 0; i < source.table.num_rows(); ++i) {
      if (source.row(i).kind != RowKind::text) return false;
    }
    return true;
  };
  impl.packed =
      !options.preference && options.packing.value_or(std::all_of(impl.sources.begin(), impl.sources.end(), all_text));
  impl.leave_rows_out(options.skip_bad_rows);
  impl.mix_sources();
  if (impl.packed) impl.pack();
  return dataset;
}

std::int64_t Dataset::num_examples() const { return impl_->num_examples; }

Example Dataset::example(std::int64_t index) const {
  const auto [source, row] = impl_->find_example(index);
  const auto [first, used] = impl_->cut(row);
  const auto length = static_cast<std::size_t>(used);
  Example example{std::vector<std::int32_t>(length), std::vector<std::int32_t>(length), source->place(row.line)};
  source->table.read_ids(row, first, example.input_ids);
  source->table.read_labels(row, first, example.labels);
  return example;
}

std::int64_t Dataset::example_tokens(std::int64_t index) const {
  return impl_->cut(impl_->find_example(index).second).length;
}

std::int64_t Dataset::example_targets(std::int64_t index) const {
  const auto [source, row] = impl_->find_example(index);
  return count_targets(impl_->whole_piece(*source, row));
}

bool Dataset::packed() const { return impl_->packed; }

bool Dataset::has_pairs() const { return impl_->examples_of_row == 2; }

std::int64_t Dataset::num_rows() const { return impl_->num_rows(); }

std::int64_t Dataset::row_tokens(std::int64_t row) const {
  std::int64_t positions = 0;
  impl_->for_each_piece(row, [&](const Piece& piece) { positions += piece.positions; });
  return positions;
}

std::int64_t Dataset::row_documents(std::int64_t row) const {
  std::int64_t documents = 0;
  impl_->for_each_piece(row, [&](const Piece&) { ++documents; });
  return documents;
}

std::int64_t Dataset::row_supervised_tokens(std::int64_t row) const {
  std::int64_t targets = 0;
  impl_->for_each_piece(row, [&](const Piece& piece) { targets += count_targets(piece); });
  return targets;
}

void Dataset::append_row(std::int64_t row, MicroBatch& batch, std::int64_t positions) const {
  if (batch.document_starts.empty()) batch.document_starts.push_back(0);
  batch.rows.push_back(row);
  impl_->for_each_piece(row, [&](Piece piece) {
    piece.positions = std::min(piece.positions, positions);
    positions -= piece.positions;
    if (piece.positions == 0) return;
    const auto count = static_cast<std::size_t>(piece.positions), before = batch.input_ids.size();
    const TokenTable& table = piece.source->table;
    batch.labels.resize(before + count);
    const auto labels = std::span(batch.labels).subspan(before);
    if (piece.row.label_offset < 0) {  // the labels are the ids, one further: read at once
      batch.input_ids.resize(before + count + 1);
      table.read_ids(piece.row, piece.first_token, std::span(batch.input_ids).subspan(before));
      std::copy(batch.input_ids.end() - static_cast<std::ptrdiff_t>(count), batch.input_ids.end(), labels.begin());
      batch.input_ids.pop_back();
    } else {
      batch.input_ids.resize(before + count);
      table.read_ids(piece.row, piece.first_token, std::span(batch.input_ids).subspan(before));
      table.read_labels(piece.row, piece.first_token + 1, labels);
    }
    HEDDLE_CHECK(batch.input_ids.size() <= std::numeric_limits<std::int32_t>::max());
    batch.positions.resize(batch.input_ids.size());
    std::iota(batch.positions.end() - static_cast<std::ptrdiff_t>(count), batch.positions.end(), 0);
    batch.document_starts.push_back(static_cast<std::int32_t>(batch.input_ids.size()));
    batch.supervised_tokens += count_targets(piece);
  });
}

std::string Dataset::source(std::int64_t row) const {
  std::string first;
  impl_->for_each_piece(row, [&](const Piece& piece) {
    if (first.empty()) first = piece.source->place(piece.row.line);
  });
  return first;
}

}  // namespace heddle
