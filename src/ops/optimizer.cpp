#include "ops/declarations.h"

// accumulate_gradient: what a micro-batch adds to the gradient of its optimizer step, where it is not made in place.
// sum_of_squares, gradient_norm: the global norm before clipping, and the factor that unscales and clips.
// adamw: AdamW with decoupled decay (Loshchilov, Hutter 2019, arXiv:1711.05101), one pass over
// gradient, moments, master weights and weights: reads 4 x 4 bytes, writes 3 x 4 (+2) bytes for each parameter.
namespace heddle {
namespace {

std::vector<ValueType> infer_updates(std::span<const ValueType>, const Attributes&) { return {}; }

}  // namespace

std::vector<Operation> optimizer_operations() {
  return {{.name = "accumulate_gradient",
           .inputs = 1,
           .outputs = 1,
           .infer = infer_updates,
           .flops = detail::flops_per_element<1>},
          {.name = "sum_of_squares",
           .inputs = 1,
           .outputs = 1,
           .infer = infer_updates,
           .flops = detail::flops_per_element<2>},
          {.name = "gradient_norm",
           .inputs = 1,
           .outputs = 2,
           .infer = infer_updates,
           .flops = detail::flops_per_element<1>},
          {.name = "adamw", .inputs = 2, .outputs = 5, .infer = infer_updates, .flops = detail::flops_per_element<14>}};
}

}  // namespace heddle
