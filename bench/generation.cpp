// Generation of a text as `heddle generate` does it, between two streaming reads of memory in the same process.
// With one token at a time all weights and the cache are read for each: that, by the rate of the read, is the least it
// can take. The prefill is compared with the forward of an evaluation of as many tokens, without its loss.
//   bench_generation MODEL fp32|bf16|fp16 [threads] [prompt tokens] [new tokens] [rounds]     prints one line of JSON
#include <cstdio>
#include <cstdlib>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "formats/json.h"
#include "kernels/cpu/table.h"
#include "measure.h"
#include "planner/ceilings.h"
#include "train/generate.h"
#include "train/run_weights.h"
#include "train/stream.h"

namespace {

using namespace heddle;
using namespace heddle::bench;

struct Options {
  std::string model;
  DType type = DType::f32;
  int threads = 1;
  std::int64_t prompt = 512, made = 64;
  int rounds = 3;
};

DType type_of(const std::string& name) {
  if (name == "fp32") return DType::f32;
  if (name == "bf16") return DType::bf16;
  if (name == "fp16") return DType::f16;
  fail("type {}; expected fp32, bf16 or fp16", name);
}

/// Bytes that one token reads: every weight once, of tables that are looked up a row; and of the cache a position.
struct BytesRead {
  std::int64_t weights = 0, position = 0;
};
BytesRead bytes_read(const StepProgram& program) {
  BytesRead bytes;
  for (const Instruction& instruction : program.instructions) {
    const bool is_lookup = instruction.operation->name == "embedding";
    for (const int input : instruction.inputs) {
      if (input < 0) continue;
      const Buffer& buffer = program.at(input);
      const bool is_cache = instruction.operation->name == "attention" && buffer.is_persistent &&
                            buffer.buffer_class == BufferClass::activations;
      if (buffer.buffer_class == BufferClass::parameters)
        bytes.weights += is_lookup ? buffer.bytes() / buffer.type.shape[0] : buffer.bytes();
      if (is_cache) bytes.position += buffer.bytes() / buffer.type.shape[0];
    }
  }
  return bytes;
}

std::string name_of(const StepProgram& program, const Instruction& instruction) {
  std::string name(instruction.operation->name);
  if (name == "linear" || name == "linear_group") {
    std::int64_t rows = 0;  // of all weights
    for (const int output : instruction.outputs) rows += program.at(output).type.shape.back();
    name += " " + std::to_string(rows) + "x" + std::to_string(program.at(instruction.inputs[1]).type.shape.back());
  }
  return name;
}

/// Seconds between two readings of an executor's counters, by operation.
std::map<std::string, double> by_operation(const StepProgram& program, const std::vector<double>& before,
                                           const std::vector<double>& after, double divisor) {
  std::map<std::string, double> seconds;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    seconds[name_of(program, program.instructions[i])] += (after[i] - before[i]) / divisor;
  }
  return seconds;
}

/// Ids that no tokenizer has to know, the same in each program that is compared.
std::vector<std::int32_t> prompt_ids(std::int64_t count, std::int64_t vocabulary) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < count; ++i) ids.push_back(static_cast<std::int32_t>((i * 7919 + 13) % vocabulary));
  return ids;
}

/// A compiled model with its weights in memory.
struct Session {
  Session(const ModelSource& model, CompiledRun run)
      : compiled(std::move(run)), executor(compiled.program_list(), compiled.plan, cpu::find_kernel, compiled.threads) {
    RunWeights(model, open_weights(model), compiled).load(compiled, 0, executor);
  }
  const CompiledRun compiled;
  Executor executor;
};

/// Seconds of the forward of an evaluation of `ids`, without what follows the last norm.
double forward_seconds(Session& session, const std::vector<std::int32_t>& ids) {
  const auto program = static_cast<std::size_t>(session.compiled.evaluate);
  const StreamFeed feed(session.executor);
  MicroBatch batch;
  batch.input_ids = batch.labels = ids;
  batch.positions.resize(ids.size());
  std::iota(batch.positions.begin(), batch.positions.end(), 0);
  batch.document_starts = {0, static_cast<std::int32_t>(ids.size())};
  Scalars scalars;
  feed.load(batch, scalars);
  const std::vector<double> before = session.executor.seconds_by_instruction(program);
  session.executor.run(program, scalars);
  const auto seconds =
      by_operation(session.compiled.programs[program], before, session.executor.seconds_by_instruction(program), 1.0);
  double total = 0;
  for (const auto& [name, part] : seconds) total += name == "linear_cross_entropy" ? 0 : part;
  return total;
}

/// A prompt and the tokens after it: seconds of the prefill, then of each token.
Json generate_once(Session& session, const std::vector<std::int32_t>& prompt, std::int64_t made) {
  const auto program = static_cast<std::size_t>(session.compiled.generate);
  const auto& counted = session.executor.seconds_by_instruction(program);
  const std::vector<double> before = counted;
  std::vector<double> after_prefill, wall, processor;
  auto last = Clock::now();
  double last_processor = processor_seconds();
  const auto ids = generate(session.executor, program, prompt, made, {}, {}, {}, [&](std::int32_t) {
    wall.push_back(seconds_since(last));
    processor.push_back(processor_seconds() - last_processor);
    if (after_prefill.empty()) after_prefill = counted;
    last = Clock::now();
    last_processor = processor_seconds();
  });
  const StepProgram& steps = session.compiled.programs[program];
  return {{"prefill", wall[0]},
          {"wall", std::vector(wall.begin() + 1, wall.end())},
          {"processor", std::vector(processor.begin() + 1, processor.end())},
          {"prefill_by_operation", by_operation(steps, before, after_prefill, 1.0)},
          {"by_operation", by_operation(steps, after_prefill, counted, static_cast<double>(made - 1))},
          {"ids", std::vector(ids.begin() + static_cast<std::ptrdiff_t>(prompt.size()), ids.end())}};
}

Json measure(const Options& options) {
  const ModelSource model = open_model(options.model);
  const auto rules = [&] { return inference_rules(model.config, open_weights(model).get(), model.adapter_folder); };
  const auto prompt = prompt_ids(options.prompt, model.config.vocab_size);
  Session session(model, compile_generation(model.config, rules(), options.type, options.prompt,
                                            options.prompt + options.made, options.threads));
  const BytesRead bytes = bytes_read(session.compiled.programs[static_cast<std::size_t>(session.compiled.generate)]);
  generate_once(session, prompt, 2);  // does not count
  Json document = {{"weight_bytes", bytes.weights}, {"position_bytes", bytes.position}, {"rounds", Json::array()}};
  document["peak_rss"] = peak_resident_bytes();
  const StreamingRead read;
  for (int round = 0; round < options.rounds; ++round) {
    const auto pass = [&] { return least_seconds(0.2, [&] { read.pass(); }); };
    const Seconds before = pass();
    Json measured = generate_once(session, prompt, options.made);
    const Seconds after = pass();
    measured["read_bytes"] = read.bytes();
    measured["read_wall"] = (before.wall + after.wall) / 2;
    measured["read_processor"] = (before.processor + after.processor) / 2;
    document["rounds"].push_back(std::move(measured));
  }
  Session evaluation(model, compile_evaluation(model.config, rules(), options.type, {options.prompt, 1}, options.prompt,
                                               options.threads));
  forward_seconds(evaluation, prompt);
  for (Json& measured : document["rounds"]) {
    measured["forward"] = forward_seconds(evaluation, prompt);
    measured["prefill_beside_forward"] = generate_once(session, prompt, 2)["prefill"];
  }
  return document;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "bench_generation MODEL fp32|bf16|fp16 [threads] [prompt tokens] [new tokens] [rounds]\n");
    return 2;
  }
  try {
    Options options;
    options.model = argv[1];
    options.type = type_of(argv[2]);
    options.threads = argc > 3 ? std::atoi(argv[3]) : available_cores();
    if (argc > 4) options.prompt = std::atoll(argv[4]);
    if (argc > 5) options.made = std::atoll(argv[5]);
    if (argc > 6) options.rounds = std::atoi(argv[6]);
    if (options.prompt < 1 || options.made < 2) fail("expected at least one token of a prompt and two new ones");
    set_threads(options.threads);
    std::printf("%s\n", measure(options).dump().c_str());
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_generation: %s\n", error.what());
    return 1;
  }
}
