#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/threads.h"
#include "cli/commands.h"
#include "cli/number_check.h"
#include "cli/open_model.h"
#include "comm/job.h"
#include "data/row_records.h"
#include "formats/json.h"
#include "train/evaluate.h"

namespace heddle::cli {
namespace {

struct Options {
  std::string model, data, tokenizer_name;
  std::int64_t max_length = 0, rows = 8;
  int threads = 0;
  bool json = false, bf16 = false, fp16 = false;
};

/// Rows of a file are scored whole; plain text is cut into rows of max_length (1024 unless given).
DatasetOptions dataset_options(const Options& options, const ModelConfig& model) {
  DatasetOptions dataset;
  dataset.files = {{options.data}};
  const bool has_rows =
      !std::filesystem::is_directory(options.data) && data_format(options.data) != DataFormat::plain_text;
  const std::int64_t positions =
      model.has_learned_positions ? model.max_positions : std::numeric_limits<std::int32_t>::max() / 2;
  dataset.max_length = options.max_length > 0 ? options.max_length
                       : has_rows             ? positions
                                              : std::min<std::int64_t>(1024, positions);
  dataset.packing = !has_rows;
  dataset.vocab_size = static_cast<std::int32_t>(model.vocab_size);
  return dataset;
}

void eval(const Options& options) {
  const ModelSource model = open_model(options.model);
  const int threads = options.threads > 0 ? options.threads : available_cores();
  set_threads(threads);
  const auto tokenizer = open_tokenizer(options.tokenizer_name, model.tokenizer_folder);
  const auto chat_template = open_chat_template(options.tokenizer_name, model.tokenizer_folder);
  DatasetOptions dataset_settings = dataset_options(options, model.config);
  if (chat_template) dataset_settings.chat_template = &*chat_template;
  const Dataset dataset = Dataset::load(dataset_settings, tokenizer.get());
  const StreamCapacity capacity = capacity_of(dataset, {.shuffle = false, .micro_batch_rows = options.rows});
  std::int64_t longest = 0;
  for (std::int64_t row = 0; row < dataset.num_rows(); ++row) longest = std::max(longest, dataset.row_tokens(row));
  auto weights = open_weights(model);
  const CompiledRun compiled = compile_evaluation(model.config, rules_of(model, *weights),
                                                  chosen_type(options.bf16, options.fp16), capacity, longest, threads);
  LoadedModel loaded(model, std::move(weights), compiled);
  const auto result =
      evaluate(loaded.executor, static_cast<std::size_t>(compiled.evaluate), dataset, options.rows, *alone());
  if (!std::isfinite(result.loss)) {
    warning(
        "the loss is no finite number: the weights hold NaN or too great values (heddle inspect MODEL --stats "
        "counts them), or fp16 overflowed");
  }
  if (options.json) {
    const Json document = {
        {"loss", result.loss}, {"perplexity", result.perplexity()}, {"num_tokens", result.num_tokens}};
    std::printf("%s\n", document.dump().c_str());
  } else {
    std::printf("loss %.6f  perplexity %.4f  over %lld tokens\n", result.loss, result.perplexity(),
                static_cast<long long>(result.num_tokens));
  }
}

}  // namespace

void add_eval(CLI::App& program, Outcome&) {
  auto* command = program.add_subcommand("eval", "loss and perplexity of a model on a file");
  auto options = std::make_shared<Options>();
  command->add_option("MODEL", options->model, "model folder or GGUF file")->required();
  command->add_option("--data", options->data, "JSONL, JSON, Parquet or plain text")->required();
  command->add_option("--tokenizer_name", options->tokenizer_name, "tokenizer, if not beside the model");
  command->add_option("--max_length", options->max_length, "positions of a row; plain text is cut to it")
      ->check(whole_number(1, kLongestText));
  command->add_option("--per_device_eval_batch_size", options->rows, "rows at a time")
      ->check(whole_number(1, kLongestText));
  command->add_option("--threads", options->threads)->check(whole_number(1, kMostThreads));
  command->add_option("--bf16", options->bf16, "compute in bf16");
  command->add_option("--fp16", options->fp16, "compute in fp16");
  command->add_flag("--json", options->json, "print one JSON document");
  command->callback([options] { eval(*options); });
}

}  // namespace heddle::cli
