#include "ops/declarations.h"

// accumulate_gradient: what a micro-batch adds to the gradient of its optimizer step, where it is not made in place.
// sum_of_squares, gradient_norm: the global norm before clipping, and the factor that unscales and clips.
// Updates of elements, one pass over gradient, states, master weights and weights:
//   adamw       decoupled decay (Loshchilov, Hutter 2019, arXiv:1711.05101): 4 x 4 bytes read, 3 x 4 (+2) written
//   adamw_8bit  moments in blocks of 8-bit codes (Dettmers et al. 2022, arXiv:2110.02861)
//   lion        sign of a moment (Chen et al. 2023, arXiv:2302.06675)
//   sgd         with momentum or without
// Updates of whole tensors make a direction in the gradient's place; `descend` steps along it:
//   adafactor      factored second moment (Shazeer, Stern 2018, arXiv:1804.04235)
//   muon_momentum, newton_schulz   momentum, made orthogonal (Jordan et al. 2024)
namespace heddle {
namespace {

std::vector<ValueType> infer_updates(std::span<const ValueType>, const Attributes&) { return {}; }

/// Per step X Xᵀ, A A and B X on the shorter side: 2 (2 r c k + k³), k = min(r, c).
double newton_schulz_flops(std::span<const ValueType> in, std::span<const ValueType>, const Attributes& a) {
  const auto rows = static_cast<double>(in[0].shape.rows()), columns = static_cast<double>(in[0].shape.back());
  const double least = rows < columns ? rows : columns;
  return static_cast<double>(a.integer("steps")) * 2.0 * least * (2.0 * rows * columns + least * least);
}

template <int PerElement>
Operation update(std::string_view name, std::size_t inputs, std::size_t outputs) {
  return {.name = name,
          .inputs = inputs,
          .outputs = outputs,
          .infer = infer_updates,
          .flops = detail::flops_per_element<PerElement>};
}

}  // namespace

std::vector<Operation> optimizer_operations() {
  return {update<1>("accumulate_gradient", 1, 1),
          update<2>("sum_of_squares", 1, 1),
          update<1>("gradient_norm", 1, 2),
          update<14>("adamw", 2, 4),
          update<24>("adamw_8bit", 2, 6),
          update<9>("lion", 2, 3),
          update<8>("sgd", 2, 3),
          update<6>("muon_momentum", 2, 2),
          {.name = "newton_schulz", .inputs = 1, .outputs = 2, .infer = infer_updates, .flops = newton_schulz_flops},
          update<12>("adafactor", 2, 5),
          update<3>("descend", 1, 2)};
}

}  // namespace heddle
