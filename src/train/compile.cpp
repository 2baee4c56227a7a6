#include "train/compile.h"

#include "base/error.h"
#include "base/threads.h"
#include "models/model.h"

namespace heddle {
namespace {

ModelConfig with_dropout_of(ModelConfig model, const RunConfig& run) {
  model.attention_dropout = run.attention_dropout.value_or(model.attention_dropout);
  model.hidden_dropout = run.hidden_dropout.value_or(model.hidden_dropout);
  model.embedding_dropout = run.embedding_dropout.value_or(model.embedding_dropout);
  return model;
}

ModelConfig without_dropout(ModelConfig model) {
  model.attention_dropout = model.hidden_dropout = model.embedding_dropout = 0;
  return model;
}

void check_positions(const ModelConfig& model, std::int64_t max_length) {
  if (model.has_learned_positions && max_length > model.max_positions) {
    fail("max_length is {}, but the model has learned positions for {} tokens (n_positions)", max_length,
         model.max_positions);
  }
}

void allocate_all(CompiledRun& compiled) {
  std::vector<StepProgram*> programs;
  for (auto& program : compiled.programs) programs.push_back(&program);
  compiled.plan =
      allocate(programs, kSharedScratchBytes + static_cast<std::uint64_t>(compiled.threads) * kScratchBytesPerThread);
}

int append(CompiledRun& compiled, StepProgram program) {
  compiled.programs.push_back(std::move(program));
  return static_cast<int>(compiled.programs.size()) - 1;
}

StepProgram build(CompiledRun& compiled, const ModelConfig& model, ProgramBuilder::Options options,
                  std::int64_t max_length, bool is_trained = false) {
  options.activation_type = compiled.activation_type;
  ProgramBuilder builder(std::move(options), compiled.parameters);
  emit_model(builder, model, max_length);
  StepProgram program = builder.take();
  // A training program is fused once it has its backward: the passes before see plain operations.
  if (!is_trained) fuse(program);
  return program;
}

}  // namespace

std::vector<const StepProgram*> CompiledRun::program_list() const {
  std::vector<const StepProgram*> list;
  for (const auto& program : programs) list.push_back(&program);
  return list;
}

DType activation_type(Precision precision) {
  switch (precision) {
    case Precision::bf16: return DType::bf16;
    case Precision::fp16: return DType::f16;
    default: return DType::f32;
  }
}

int threads_of(const RunConfig& run) { return run.threads > 0 ? run.threads : available_cores(); }

CompiledRun compile_training(const ModelConfig& model, const RunConfig& run, StreamCapacity train,
                             std::optional<StreamCapacity> validation) {
  check_positions(model, run.max_length);
  CompiledRun compiled;
  compiled.activation_type = activation_type(run.precision);
  compiled.threads = threads_of(run);
  StepProgram step =
      build(compiled, with_dropout_of(model, run),
            {.name = "micro-batch", .token_capacity = train.tokens, .document_capacity = train.documents},
            run.max_length, true);
  differentiate(step);
  constexpr std::array kModes = {RecomputeMode::none, RecomputeMode::selective, RecomputeMode::full};
  recompute(step, kModes[static_cast<std::size_t>(run.recompute)]);
  fuse(step);
  accumulate(step);
  compiled.micro_batch = append(compiled, std::move(step));
  compiled.norm = append(compiled, make_norm_program(compiled.parameters));
  compiled.update = append(compiled, make_adamw_program(compiled.parameters, compiled.activation_type,
                                                        {.beta1 = run.adam_beta1,
                                                         .beta2 = run.adam_beta2,
                                                         .epsilon = run.adam_epsilon,
                                                         .weight_decay = run.weight_decay}));
  if (validation) {
    compiled.evaluate = append(
        compiled,
        build(compiled, without_dropout(model),
              {.name = "evaluation", .token_capacity = validation->tokens, .document_capacity = validation->documents},
              run.max_length));
  }
  allocate_all(compiled);
  return compiled;
}

CompiledRun compile_evaluation(const ModelConfig& model, DType activation, StreamCapacity capacity,
                               std::int64_t max_length, int threads) {
  check_positions(model, max_length);
  CompiledRun compiled;
  compiled.activation_type = activation;
  compiled.threads = threads;
  compiled.evaluate =
      append(compiled,
             build(compiled, without_dropout(model),
                   {.name = "evaluation", .token_capacity = capacity.tokens, .document_capacity = capacity.documents},
                   max_length));
  allocate_all(compiled);
  return compiled;
}

CompiledRun compile_generation(const ModelConfig& model, DType activation, std::int64_t prompt_tokens,
                               std::int64_t cache_positions, int threads) {
  check_positions(model, cache_positions);
  CompiledRun compiled;
  compiled.activation_type = activation;
  compiled.threads = threads;
  compiled.generate = append(compiled, build(compiled, without_dropout(model),
                                             {.name = "generation",
                                              .purpose = ProgramBuilder::Purpose::generation,
                                              .token_capacity = prompt_tokens,
                                              .cache_capacity = cache_positions},
                                             cache_positions));
  allocate_all(compiled);
  return compiled;
}

}  // namespace heddle
