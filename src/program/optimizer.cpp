#include "program/optimizer.h"

namespace heddle {
namespace {

/// bitsandbytes keeps embeddings in f32, as Hugging Face's Trainer tells it, and what is small.
bool has_8bit_states(const Parameter& parameter) {
  return parameter.place != ParameterPlace::embedding && parameter.shape.elements() >= kLeast8BitElements;
}

/// Matrices of the blocks; what embeds, projects to logits, scales or shifts is not one (Jordan 2024).
bool is_muons(const Parameter& parameter) {
  return parameter.place == ParameterPlace::block && parameter.shape.rank() == 2;
}

/// Row means over the last axis, column means over the one before it (Shazeer, Stern 2018); vectors are not factored.
std::vector<OptimizerState> adafactor_states(const Shape& shape) {
  if (shape.rank() < 2) return {{.name = "exp_avg_sq", .shape = shape, .covered = 0}};
  std::vector<std::int64_t> rows(shape.extents().begin(), shape.extents().end()), columns = rows;
  rows.pop_back();
  columns.erase(columns.end() - 2);
  return {{.name = "exp_avg_sq_row", .shape = Shape(rows), .covered = 0},
          {.name = "exp_avg_sq_col", .shape = Shape(columns), .covered = 0}};
}

}  // namespace

OptimizerKind kind_for(const OptimizerSettings& settings, const Parameter& parameter) {
  const bool is_own = settings.kind == OptimizerKind::adamw_8bit ? has_8bit_states(parameter)
                      : settings.kind == OptimizerKind::muon     ? is_muons(parameter)
                                                                 : true;
  return is_own ? settings.kind : OptimizerKind::adamw;
}

std::vector<OptimizerState> optimizer_states(const OptimizerSettings& settings, const Parameter& parameter) {
  const Shape& shape = parameter.shape;
  const Shape blocks = {(shape.elements() + kStateBlock - 1) / kStateBlock};
  switch (kind_for(settings, parameter)) {
    case OptimizerKind::adamw: return {{.name = "exp_avg", .shape = shape}, {.name = "exp_avg_sq", .shape = shape}};
    case OptimizerKind::adamw_8bit:
      return {{.name = "exp_avg", .dtype = DType::u8, .shape = shape},
              {.name = "exp_avg_absmax", .shape = blocks, .covered = kStateBlock},
              {.name = "exp_avg_sq", .dtype = DType::u8, .shape = shape},
              {.name = "exp_avg_sq_absmax", .shape = blocks, .covered = kStateBlock}};
    case OptimizerKind::lion: return {{.name = "exp_avg", .shape = shape}};
    case OptimizerKind::sgd:
      if (settings.momentum == 0.0) return {};
      return {{.name = "momentum_buffer", .shape = shape}};
    case OptimizerKind::adafactor: return adafactor_states(shape);
    case OptimizerKind::muon: return {{.name = "momentum_buffer", .shape = shape}};
  }
  return {};
}

std::string state_label(const std::string& parameter, std::string_view state) {
  return parameter + " " + std::string(state);
}

}  // namespace heddle
