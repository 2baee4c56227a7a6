#include "train/training_state.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/agreement.h"
#include "checkpoint/checked_file.h"
#include "formats/json_reader.h"
#include "train/local_state.h"

namespace heddle {
namespace {

constexpr std::string_view kRowsUsed = "rows_used";

std::int64_t steps_per_epoch(const DataOrder& data) { return (data.rows - 1) / data.rows_per_step + 1; }

std::vector<std::int64_t> extents_of(const Shape& shape) {
  const auto extents = shape.extents();
  return {extents.begin(), extents.end()};
}

void require_shape(const Checkpoint& checkpoint, const std::string& name, const Shape& shape) {
  const auto found = checkpoint.tensors().find(name);
  if (found == checkpoint.tensors().end())
    fail("{}: tensor {} is missing; the checkpoint is of another model", checkpoint.folder().string(), name);
  if (found->second.shape != extents_of(shape)) {
    fail("{}: tensor {} has shape {}; this run's model has {}", checkpoint.folder().string(), name,
         Shape(std::span<const std::int64_t>(found->second.shape)).text(), shape.text());
  }
}

void require_state(const Checkpoint& checkpoint, const OptimizerState& state, const Parameter& parameter) {
  const std::string name = saved_name(state, parameter);
  const auto found = checkpoint.tensors().find(name);
  if (found == checkpoint.tensors().end() || found->second.dtype != state.dtype)
    fail("{}: tensor {} is missing, or of another type: its run had another optim", checkpoint.folder().string(), name);
  require_shape(checkpoint, name, state.shape);
}

/// Whether this run has a tensor of that name, whose kind ends at `slash`.
bool is_expected(const std::string& name, std::size_t slash, const OptimizerSettings& optimizer,
                 const Parameter& parameter) {
  const auto kind = std::string_view(name).substr(0, slash);
  const auto states = optimizer_states(optimizer, parameter);
  return kind == "weights" ||
         std::any_of(states.begin(), states.end(), [&](const OptimizerState& state) { return state.name == kind; });
}

/// How far a checkpoint's run had used its data, and the refusals that follow.
class SavedOrder {
 public:
  explicit SavedOrder(const Checkpoint& checkpoint)
      : where_(checkpoint.folder().filename().string()),
        reader_(JsonReader(checkpoint.state(), (checkpoint.folder() / "manifest.json").string()).object("data")) {}

  /// The step at which a schedule in the order `data` goes on.
  std::int64_t next_step(const DataOrder& data) const {
    if (reader_.has(kRowsUsed)) return behind_other_program(data);
    require_same_rows(data);
    const std::int64_t epoch = reader_.integer("epoch", 0, INT64_MAX), row = reader_.integer("row", 0, data.rows);
    if (row % data.rows_per_step != 0) {
      fail(
          "{}: {} rows of its epoch are used; steps of {} rows (micro-batch x accumulation x ranks) would use some "
          "twice or never, those of {} rows would not",
          where_, row, data.rows_per_step, reader_.integer("rows_per_step", 1, INT64_MAX));
    }
    return epoch * steps_per_epoch(data) + row / data.rows_per_step;
  }

 private:
  /// Its epochs too have a step of what is left, as those of PyTorch's loader.
  std::int64_t behind_other_program(const DataOrder& data) const {
    const std::int64_t rows = reader_.integer(kRowsUsed, 0, INT64_MAX), step = rows / data.rows_per_step;
    note(
        "{}: the program that made it does not say which rows it has used; {} are taken as used, in this run's order: "
        "its first {} steps",
        where_, rows, step);
    return step;
  }
  void require_same_rows(const DataOrder& data) const {
    if (const auto rows = reader_.integer("rows", 0, INT64_MAX); rows != data.rows) {
      fail("{}: its run had {} training rows, this one has {}{}", where_, rows, data.rows, kAdvice);
    }
    if (reader_.text("digest") != data.digest)
      fail("{}: its run had as many training rows, but others{}", where_, kAdvice);
    if (reader_.boolean_or("shuffle", true) != data.is_shuffled)
      fail("{}: its run had shuffle: {}, this one has {}{}", where_, !data.is_shuffled, data.is_shuffled, kAdvice);
    const Json* seed = reader_.find("seed");
    if (data.is_shuffled && (seed == nullptr || !seed->is_number_integer() || seed->get<std::uint64_t>() != data.seed))
      fail("{}: its run had seed: {}, this one has {}{}", where_, seed == nullptr ? "none" : seed->dump(), data.seed,
           kAdvice);
  }

  static constexpr std::string_view kAdvice =
      ", so that some would be used twice or never; a new run takes its config and weights by model_name_or_path";
  std::string where_;
  JsonReader reader_;
};

Json state_document(const TrainingState& state, Json data) {
  Json document = {{"step", state.step},
                   {"updates", state.updates},
                   {"skipped_in_a_row", state.skipped_in_a_row},
                   {"micro_batches", state.micro_batches},
                   {"data", std::move(data)},
                   {"best_evaluation", best_document(state.best)},
                   {"loss_watch", loss_watch_document(state.loss_watch)}};
  if (state.loss_scaler) {
    document["loss_scaler"] = {{"scale", state.loss_scaler->scale},
                               {"steps_without_overflow", state.loss_scaler->steps_without_overflow},
                               {"hysteresis_left", state.loss_scaler->hysteresis_left}};
  }
  return document;
}

LossScaler::State read_scaler(const JsonReader& reader) {
  return {.scale = reader.positive_number("scale"),
          .steps_without_overflow = reader.integer("steps_without_overflow", 0, INT64_MAX),
          .hysteresis_left = reader.integer("hysteresis_left", 0, INT64_MAX)};
}

}  // namespace

DataOrder data_order(const Dataset& dataset, const RunConfig& run, std::int64_t rows_per_step) {
  constexpr std::int64_t kSampled = 64;  // rows whose content is looked at
  const std::int64_t rows = dataset.num_rows();
  std::vector<std::int64_t> facts = {rows};
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::array numbers = {static_cast<std::uint64_t>(facts[0]),
                                static_cast<std::uint64_t>(dataset.row_tokens(row)),
                                static_cast<std::uint64_t>(dataset.row_supervised_tokens(row))};
    facts[0] = static_cast<std::int64_t>(checksum_of(std::as_bytes(std::span(numbers))));
  }
  MicroBatch sample;
  const std::int64_t count = std::min(rows, kSampled);
  for (std::int64_t i = 0; i < count; ++i) dataset.append_row(i * rows / count, sample);
  for (const auto* ids : {&sample.input_ids, &sample.labels})
    facts.push_back(static_cast<std::int64_t>(checksum_of(std::as_bytes(std::span(*ids)))));
  return {.rows = rows,
          .rows_per_step = std::min(rows_per_step, rows),
          .is_shuffled = run.shuffle,
          .seed = run.seed,
          .digest = checksum_text(checksum_of(std::as_bytes(std::span(facts))))};
}

std::int64_t rows_before(std::int64_t schedule_step, const DataOrder& data) {
  const std::int64_t epoch = schedule_step / steps_per_epoch(data);
  return epoch * data.rows + (schedule_step - epoch * steps_per_epoch(data)) * data.rows_per_step;
}

std::vector<CheckpointPiece> checkpoint_pieces(const Executor& executor, const Parameters& parameters,
                                               const Sharding& sharding) {
  std::vector<CheckpointPiece> pieces;
  for (const auto& tensor : state_tensors(executor, parameters, sharding)) {
    const LocalTensor& owned = tensor.owned;
    pieces.push_back(
        {tensor.name, owned.values.dtype, extents_of(tensor.shape), owned.begin, owned.end, bytes_of(owned.values)});
  }
  return pieces;
}

std::uint64_t checkpoint_bytes(const Parameters& parameters) {
  std::int64_t bytes = 0;
  for (const auto& parameter : parameters.list) {
    if (!parameter.is_trainable) continue;
    bytes += static_cast<std::int64_t>(sizeof(float)) * parameter.shape.elements();
    for (const auto& state : optimizer_states(parameters.optimizer, parameter))
      bytes += static_cast<std::int64_t>(dtype_bytes(state.dtype)) * state.shape.elements();
  }
  return static_cast<std::uint64_t>(bytes);
}

Json state_document(const TrainingState& state, const DataOrder& data) {
  const std::int64_t epoch = state.schedule_step / steps_per_epoch(data);
  return state_document(state, {{"epoch", epoch},
                                {"row", rows_before(state.schedule_step, data) - epoch * data.rows},
                                {"rows", data.rows},
                                {"rows_per_step", data.rows_per_step},
                                {"shuffle", data.is_shuffled},
                                {"seed", data.seed},
                                {"digest", data.digest}});
}

Json state_document(const TrainingState& state, std::int64_t rows_used) {
  return state_document(state, Json{{kRowsUsed, rows_used}});
}

TrainingState read_state(const Checkpoint& checkpoint, const DataOrder& data) {
  const JsonReader reader(checkpoint.state(), (checkpoint.folder() / "manifest.json").string());
  TrainingState state;
  state.step = reader.integer("step", 0, INT64_MAX);
  state.updates = reader.integer("updates", 0, state.step);
  state.skipped_in_a_row = reader.integer("skipped_in_a_row", 0, state.step);
  state.micro_batches = reader.integer("micro_batches", 0, INT64_MAX);
  state.schedule_step = SavedOrder(checkpoint).next_step(data);
  if (reader.has("loss_scaler")) state.loss_scaler = read_scaler(reader.object("loss_scaler"));
  state.best = read_best(reader, state.step);
  state.loss_watch = read_loss_watch(reader);
  return state;
}

void require_same_model(const Checkpoint& checkpoint, const Parameters& parameters, const std::string& base_digest) {
  const std::string where = checkpoint.folder().string();
  const bool has_frozen = parameters.trainable_count() < parameters.count();
  if (has_frozen && checkpoint.state().value("base", "") != base_digest)
    fail("{}: its run had another base model, whose weights it does not hold", where);
  const auto& saved = checkpoint.tensors();
  std::size_t expected = 0;
  for (const auto& parameter : parameters.list) {
    if (!parameter.is_trainable) continue;
    ++expected;
    require_shape(checkpoint, "weights/" + parameter.name, parameter.shape);
    for (const auto& state : optimizer_states(parameters.optimizer, parameter)) {
      ++expected;
      require_state(checkpoint, state, parameter);
    }
  }
  if (saved.size() == expected) return;
  for (const auto& [name, tensor] : saved) {
    const auto slash = name.find('/');
    const Parameter* parameter = slash == std::string::npos ? nullptr : parameters.find(name.substr(slash + 1));
    if (parameter == nullptr || !parameter->is_trainable)
      fail("{}: tensor {} is surplus: this run's model has no such tensor", where, name);
    if (!is_expected(name, slash, parameters.optimizer, *parameter))
      fail("{}: tensor {} is surplus: its run had another optim", where, name);
  }
}

void restore_tensors(const Checkpoint& checkpoint, const Parameters& parameters, const Sharding& sharding,
                     Executor& executor) {
  for (const auto& tensor : state_tensors(executor, parameters, sharding)) {
    for (const auto& part : tensor.loaded) {
      checkpoint.read(tensor.name, part.begin, part.end, part.values.dtype, bytes_of(part.values));
      executor.filled(bytes_of(part.values));
    }
  }
}

std::optional<Checkpoint> find_resume_point(const RunConfig& run, Communicator& communicator) {
  if (run.resume_from_checkpoint == "false") return std::nullopt;
  if (run.resume_from_checkpoint == "auto") return newest_checkpoint(run.output_dir, communicator);
  agree(communicator, [&] {
    if (!std::filesystem::is_directory(run.resume_from_checkpoint))
      fail("resume_from_checkpoint: there is no checkpoint {}", run.resume_from_checkpoint);
  });
  return open_checkpoint(run.resume_from_checkpoint, communicator);
}

}  // namespace heddle
