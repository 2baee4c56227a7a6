#include "train/generate.h"

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/threads.h"
#include "cli/commands.h"
#include "cli/number_check.h"
#include "cli/open_model.h"
#include "formats/files.h"
#include "formats/json.h"

namespace heddle::cli {
namespace {

struct Options {
  std::string model, prompt, tokenizer_name;
  std::int64_t max_new_tokens = 128;
  int threads = 0;
  std::string system;
  bool json = false, bf16 = false, fp16 = false, chat = false;
  SamplingOptions sampling;
};

/// generation_config.json's end ids where it has them, else config.json's.
std::vector<std::int32_t> end_ids(const ModelSource& model) {
  const auto path = model.folder / "generation_config.json";
  if (std::filesystem::exists(path)) {
    const Json config = parse_json(read_text_file(path), path.string(), 200, NonFinite::as_text);
    if (const auto found = config.find("eos_token_id"); found != config.end() && !found->is_null()) {
      if (found->is_number_integer()) return {found->get<std::int32_t>()};
      if (found->is_array()) return found->get<std::vector<std::int32_t>>();
    }
  }
  return model.config.eos_token_ids;
}

/// The prompt as a user's turn, by the model's chat template, up to where the assistant begins.
std::string as_conversation(const Options& options, const ModelSource& model) {
  const auto chat_template = open_chat_template(options.tokenizer_name, model.tokenizer_folder);
  if (!chat_template) fail("{}: has no chat template; expected one for --chat", model.tokenizer_folder.string());
  Json messages = Json::array();
  if (!options.system.empty()) messages.push_back({{"role", "system"}, {"content", options.system}});
  messages.push_back({{"role", "user"}, {"content", options.prompt}});
  return chat_template->render(messages, nullptr, Json::object(), true).text;
}

std::vector<std::int32_t> prompt_ids(const Options& options, const Tokenizer& tokenizer, const ModelSource& model) {
  const ModelConfig& config = model.config;
  // A template writes the special tokens itself.
  if (options.chat) return tokenizer.encode(as_conversation(options, model), false);
  auto ids = tokenizer.encode(options.prompt, true);
  if (!ids.empty()) return ids;
  if (const auto bos = tokenizer.bos_id()) return {*bos};
  if (config.bos_token_id) return {*config.bos_token_id};
  if (const auto eos = tokenizer.eos_id()) return {*eos};  // GPT-2's end-of-text also begins one
  fail("--prompt is empty and the model has no beginning-of-text token");
}

void run(const Options& options) {
  const ModelSource model = open_model(options.model);
  const int threads = options.threads > 0 ? options.threads : available_cores();
  set_threads(threads);
  const auto tokenizer = open_tokenizer(options.tokenizer_name, model.tokenizer_folder);
  if (!tokenizer) fail("{}: has no tokenizer.json; --tokenizer_name names another", model.tokenizer_folder.string());
  const auto prompt = prompt_ids(options, *tokenizer, model);
  for (const auto id : prompt) {
    if (id >= model.config.vocab_size)
      fail("the tokenizer gives id {}, the model has {} ids", id, model.config.vocab_size);
  }
  const auto length = static_cast<std::int64_t>(prompt.size());
  auto weights = open_weights(model);
  const CompiledRun compiled =
      compile_generation(model.config, rules_of(model, *weights), chosen_type(options.bf16, options.fp16), length,
                         length + options.max_new_tokens, threads);
  LoadedModel loaded(model, std::move(weights), compiled);
  const auto ids = generate(loaded.executor, static_cast<std::size_t>(compiled.generate), prompt,
                            options.max_new_tokens, end_ids(model), options.sampling, compiled.cache_limits);
  const std::size_t shown = options.chat ? prompt.size() : 0;  // of a conversation only the answer
  const std::string text = tokenizer->decode(std::span(ids).subspan(shown), true);
  if (options.json) {
    // Text that stops inside a character cannot be JSON; such bytes are shown as U+FFFD, the ids say all.
    const Json document = {{"text", text}, {"ids", ids}};
    std::printf("%s\n", document.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
  } else {
    std::printf("%s\n", text.c_str());
  }
}

/// As transformers warns of values that only sampling reads.
void warn_of_unused_sampling(const CLI::App& command) {
  std::vector<std::string> unused;
  for (const char* name : {"--temperature", "--top_k", "--top_p", "--seed"}) {
    if (command.count(name) > 0) unused.emplace_back(name);
  }
  if (unused.empty()) return;
  warning("{} {} nothing without --do_sample: the most likely token is taken each time", fmt::join(unused, ", "),
          unused.size() == 1 ? "changes" : "change");
}

}  // namespace

void add_generate(CLI::App& program, Outcome&) {
  auto* command = program.add_subcommand("generate", "text from a model");
  auto options = std::make_shared<Options>();
  command->add_option("MODEL", options->model, "model folder or GGUF file")->required();
  command->add_option("--prompt", options->prompt, "text to go on from; empty: from the beginning of a text")
      ->required();
  auto* chat = command->add_flag("--chat", options->chat,
                                 "the prompt is what a user says: apply the chat template, print the answer alone");
  command->add_option("--system", options->system, "system message of a --chat")->needs(chat);
  command->add_option("--tokenizer_name", options->tokenizer_name, "tokenizer, if not beside the model");
  command->add_option("--max_new_tokens", options->max_new_tokens, "tokens to add at most")
      ->check(whole_number(0, kLongestText));
  command->add_flag("--do_sample", options->sampling.do_sample, "draw tokens by probability; else the most likely");
  command->add_option("--temperature", options->sampling.temperature)->check(above_0());
  command->add_option("--top_k", options->sampling.top_k)->check(whole_number(0));
  command->add_option("--top_p", options->sampling.top_p)->check(up_to(1));
  command->add_option("--seed", options->sampling.seed);
  command->add_option("--threads", options->threads)->check(whole_number(1, kMostThreads));
  command->add_option("--bf16", options->bf16, "compute in bf16");
  command->add_option("--fp16", options->fp16, "compute in fp16");
  command->add_flag("--json", options->json, "print one JSON document");
  command->callback([command, options] {
    if (!options->sampling.do_sample) warn_of_unused_sampling(*command);
    run(*options);
  });
}

}  // namespace heddle::cli
