#include "train/compile.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/threads.h"
#include "checkpoint/chunk_writer.h"
#include "models/model.h"
#include "train/activations.h"
#include "train/optimizer.h"

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

/// Room in which a product packs its larger operand: whole where that fits into kSharedScratchBytes, and what any
/// product needs where operands are small.
std::uint64_t shared_scratch_bytes(const std::vector<StepProgram>& programs) {
  constexpr std::int64_t kLeast = std::int64_t{1} << 20, kMost = kSharedScratchBytes;
  std::int64_t elements = 0;
  for (const auto& program : programs) {
    for (const auto& instruction : program.instructions) {
      if (instruction.operation->moves_data || instruction.phase == Phase::update) continue;
      for (const auto* operands : {&instruction.inputs, &instruction.outputs}) {
        for (const int id : *operands) {
          if (id >= 0) elements = std::max(elements, program.at(id).type.shape.elements());
        }
      }
    }
  }
  // In f32, and a quarter more for rows that are padded to whole tiles.
  const std::int64_t bytes = elements < kMost ? elements * 5 : kMost;
  return static_cast<std::uint64_t>(std::clamp(bytes, kLeast, kMost) / 64 * 64);
}

void allocate_all(CompiledRun& compiled, std::uint64_t save_buffer_bytes = 0) {
  std::vector<StepProgram*> programs;
  for (auto& program : compiled.programs) programs.push_back(&program);
  const std::uint64_t shared = shared_scratch_bytes(compiled.programs);
  const std::uint64_t of_threads = static_cast<std::uint64_t>(compiled.threads) * kScratchBytesPerThread;
  compiled.plan = allocate(programs, shared + of_threads + save_buffer_bytes);
  compiled.plan.shared_scratch_bytes = shared;
  compiled.plan.save_buffer_bytes = save_buffer_bytes;
}

PreferenceLoss preference_of(const RunConfig& run) {
  constexpr std::array<std::string_view, 5> kTypes = {"sigmoid", "hinge", "ipo", "robust", "sigmoid_norm"};
  const auto& preference = run.preference;
  const auto* const found = std::find(kTypes.begin(), kTypes.end(), preference.loss_type);
  if (found == kTypes.end()) fail("loss_type is {}, which no program is made for", preference.loss_type);
  return {static_cast<PreferenceLossType>(found - kTypes.begin()), preference.beta, preference.label_smoothing};
}

/// Makes the MLPs of a program over that many tokens in tiles, where the run asks for it.
void tile_mlp(StepProgram& program, const ModelConfig& model, const RunConfig& run, std::int64_t tokens) {
  if (!run.tiled_mlp) return;
  const auto divide_up = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
  const std::int64_t shards = run.tiled_mlp_num_shards;
  const std::int64_t tile = shards > 0 ? divide_up(tokens, shards) : model.hidden_size;
  tile_mlp(program, divide_up(tile, kTokenSumBlock) * kTokenSumBlock);
}

/// Options of a program with a loss over streams of that capacity.
ProgramBuilder::Options loss_options(const RunConfig& run, std::string name, StreamCapacity capacity) {
  ProgramBuilder::Options options{
      .name = std::move(name), .token_capacity = capacity.tokens, .document_capacity = capacity.documents};
  if (run.trains_on_pairs()) {
    options.purpose = ProgramBuilder::Purpose::preference_loss;
    options.preference = preference_of(run);
  }
  return options;
}

/// The gradients of so many groups: as many among the first as among the last, so that where they are updated there is
/// something to compute beside each transfer. `several_first`: before all others those that several units add to, which
/// are in memory as a whole whenever one does.
std::set<std::string> spread(const std::vector<GradientGroup>& groups, std::size_t count, bool several_first) {
  std::set<std::string> chosen;
  std::vector<const GradientGroup*> others;
  for (const GradientGroup& group : groups) {
    if (!several_first || !group.is_of_several_units) {
      others.push_back(&group);
    } else if (count > 0) {
      chosen.insert(group.labels.begin(), group.labels.end());
      --count;
    }
  }
  for (std::size_t i = 0; i < others.size(); ++i) {
    if ((i + 1) * count / others.size() > i * count / others.size())
      chosen.insert(others[i]->labels.begin(), others[i]->labels.end());
  }
  return chosen;
}

/// What stays of what `moved` offloads, by the run's numbers.
CompiledRun::Residents choose_residents(const StepProgram& step, const RunConfig& run, Offload& moved) {
  const auto groups = gradient_groups(step);
  CompiledRun::Residents residents{.groups = groups.size()};
  for (const GradientGroup& group : groups) {
    residents.weights += group.labels.size();
    residents.groups_of_several_units += group.is_of_several_units ? 1 : 0;
  }
  if (moved.optimizer != Tier::device) moved.resident_states = spread(groups, run.resident_states, false);
  if (moved.gradients == Tier::nvme) moved.resident_gradients = spread(groups, run.resident_gradients, true);
  residents.states = moved.resident_states.size();
  residents.gradients = moved.resident_gradients.size();
  return residents;
}

int append(CompiledRun& compiled, StepProgram program) {
  compiled.programs.push_back(std::move(program));
  return static_cast<int>(compiled.programs.size()) - 1;
}

void append_update(CompiledRun& compiled, StepProgram step, const Offload& moved) {
  const auto make = [&](UpdatedWeights updated) {
    return make_optimizer_program(compiled.parameters, compiled.activation_type, compiled.sharding, moved, updated);
  };
  // Beside activations that gather in host memory the pieces of an update would take more of it.
  const bool may_wait = compiled.sharding.ranks == 1 && moved.activations != Tier::host;
  StepProgram streamed = may_wait ? make(UpdatedWeights::streamed) : StepProgram{};
  if (streamed.instructions.empty()) {
    compiled.update = append(compiled, make(UpdatedWeights::all));
    return;
  }
  update_ahead(step, streamed);
  step.name += " with the update before";
  compiled.update = append(compiled, make(UpdatedWeights::in_memory));
  compiled.streamed_update = append(compiled, std::move(streamed));
  compiled.micro_batch_with_update = append(compiled, std::move(step));
}

StepProgram build(CompiledRun& compiled, const ModelConfig& model, ProgramBuilder::Options options,
                  bool is_trained = false) {
  options.activation_type = compiled.activation_type;
  options.treatment = compiled.rules;
  ProgramBuilder builder(std::move(options), compiled.parameters);
  if (compiled.rules.adapter() == nullptr) {
    emit_model(builder, model);
  } else {
    LoraEmitter with_adapter(builder, *compiled.rules.adapter(), is_trained);
    emit_model(with_adapter, model);
  }
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

int threads_of(const RunConfig& run) {
  return run.threads > 0 ? run.threads : std::max(1, available_cores() / run.ranks);
}

Sharding sharding_of(const RunConfig& run, int rank) {
  return {.stage = run.zero_stage,
          .ranks = run.ranks,
          .rank = rank,
          .accumulation = run.gradient_accumulation_steps,
          .is_ordered = run.reduction == ReductionOrder::ordered,
          .overlaps = run.zero.overlap_comm,
          // Where weights are offloaded, small ones are too.
          .persistence_threshold = run.offload_param == OffloadDevice::none ? run.zero.param_persistence_threshold : 0};
}

Offload offload_of(const RunConfig& run) {
  if (run.offload_param != OffloadDevice::none && run.ranks > 1 && run.zero_stage != 3) {
    fail("offload_param is set, and {} ranks at zero_stage {} hold the weights whole; expected zero_stage 3", run.ranks,
         run.zero_stage);
  }
  constexpr std::array kTiers = {Tier::device, Tier::host, Tier::nvme};
  const auto tier = [&](OffloadDevice device) { return kTiers[static_cast<std::size_t>(device)]; };
  // Gradients go to host memory with the optimizer, which reads them there; where ranks hold them whole, they stay.
  const bool are_whole = run.ranks > 1 && run.zero_stage < 2;
  const bool moves_gradients =
      (run.offload_optimizer != OffloadDevice::none || run.offload_gradients != OffloadDevice::none) && !are_whole;
  if (run.offload_gradients == OffloadDevice::nvme && are_whole) {
    fail(
        "offload_gradients is nvme, and {} ranks at zero_stage {} hold the gradients whole; expected zero_stage 2 or 3",
        run.ranks, run.zero_stage);
  }
  return {.parameters = tier(run.offload_param),
          .optimizer = tier(run.offload_optimizer),
          .gradients = !moves_gradients                               ? Tier::device
                       : run.offload_gradients == OffloadDevice::nvme ? Tier::nvme
                                                                      : Tier::host,
          .activations = tier(run.offload_activations)};
}

TransferOptions transfers_of(const RunConfig& run) {
  return {.block_size = static_cast<std::size_t>(run.aio.block_size),
          .queue_depth = run.aio.queue_depth * run.aio.intra_op_parallelism,
          .single_submit = run.aio.single_submit,
          .overlap_events = run.aio.overlap_events};
}

CompiledRun compile_training(const ModelConfig& model, const RunConfig& run, WeightRules rules, StreamCapacity train,
                             std::optional<StreamCapacity> validation, int rank) {
  check_positions(model, run.max_length);
  CompiledRun compiled;
  compiled.rules = std::move(rules);
  compiled.activation_type = activation_type(run.precision);
  compiled.threads = threads_of(run);
  compiled.sharding = sharding_of(run, rank);
  // TRL's DPOTrainer trains without the dropout of the model's config.
  const ModelConfig trained = with_dropout_of(run.trains_on_pairs() ? without_dropout(model) : model, run);
  StepProgram step = build(compiled, trained, loss_options(run, "micro-batch", train), true);
  regularize(step, regularization_of(run));
  differentiate(step);
  UnitActivations activations = unit_activations(run, step);
  recompute(step, activations.recompute, run.tiled_mlp);
  fuse(step);
  tile_mlp(step, model, run, train.tokens);
  accumulate(step, run.gradient_accumulation_steps == 1);
  Offload moved = offload_of(run);
  moved.resident_units = std::move(activations.stay);
  compiled.block_activations = run.block_activations;
  compiled.activations_key = activations_key(run);
  compiled.residents = choose_residents(step, run, moved);
  shard(step, compiled.sharding, moved);
  offload(step, moved);
  if (moved.gradients == Tier::nvme) swap_gradients(step, compiled.parameters, compiled.sharding, moved);
  compiled.micro_batch = append(compiled, step);
  compiled.norm = append(compiled, make_norm_program(compiled.parameters, compiled.sharding, moved));
  compiled.parameters.optimizer = optimizer_settings(run);
  append_update(compiled, std::move(step), moved);
  const auto append_forward = [&](ProgramBuilder::Options options) {
    const std::int64_t tokens = options.token_capacity;
    StepProgram program = build(compiled, without_dropout(model), std::move(options));
    tile_mlp(program, model, run, tokens);
    shard(program, compiled.sharding);
    offload(program, moved);
    return append(compiled, std::move(program));
  };
  const auto append_reference = [&](std::string name, StreamCapacity capacity) {
    auto options = loss_options(run, std::move(name), capacity);
    options.purpose = ProgramBuilder::Purpose::log_probs;
    return append_forward(std::move(options));
  };
  if (validation) compiled.evaluate = append_forward(loss_options(run, "evaluation", *validation));
  if (run.trains_on_pairs()) {
    compiled.reference = append_reference("reference", train);
    if (validation) compiled.evaluation_reference = append_reference("evaluation reference", *validation);
  }
  allocate_all(compiled, !run.save_async       ? 0
                         : run.save_compressed ? ChunkWriter::kCompressingBytes
                                               : ChunkWriter::kBufferBytes);
  return compiled;
}

CompiledRun compile_evaluation(const ModelConfig& model, WeightRules rules, DType activation, StreamCapacity capacity,
                               std::int64_t max_length, int threads) {
  check_positions(model, max_length);
  CompiledRun compiled;
  compiled.rules = std::move(rules);
  compiled.activation_type = activation;
  compiled.threads = threads;
  compiled.evaluate =
      append(compiled,
             build(compiled, without_dropout(model),
                   {.name = "evaluation", .token_capacity = capacity.tokens, .document_capacity = capacity.documents}));
  allocate_all(compiled);
  return compiled;
}

CompiledRun compile_generation(const ModelConfig& model, WeightRules rules, DType activation,
                               std::int64_t prompt_tokens, std::int64_t cache_positions, int threads) {
  check_positions(model, cache_positions);
  CompiledRun compiled;
  compiled.rules = std::move(rules);
  compiled.activation_type = activation;
  compiled.threads = threads;
  compiled.cache_limits = key_cache_limits(model);
  std::int64_t tokens = prompt_tokens;
  for (const std::int64_t limit : compiled.cache_limits) {
    if (limit < cache_positions) tokens = std::max(tokens, limit + 1);
  }
  compiled.generate = append(compiled, build(compiled, without_dropout(model),
                                             {.name = "generation",
                                              .purpose = ProgramBuilder::Purpose::generation,
                                              .token_capacity = tokens,
                                              .cache_capacity = cache_positions}));
  group_linears(compiled.programs.back());
  allocate_all(compiled);
  return compiled;
}

}  // namespace heddle
