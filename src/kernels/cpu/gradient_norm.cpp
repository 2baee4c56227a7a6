// sum_of_squares: sums of x_i^2 in f64 (the squares of floats are exact there), by runs of blocks (ops/block_tree.h):
// neither threads nor the cut over ranks change a bit.
// gradient_norm: norm and clipping factor from all runs, as torch.nn.utils.clip_grad_norm_ forms them.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gradient_norm.cpp"
#include <hwy/foreach_target.h>

#include <cmath>

#include "kernels/cpu/blocks.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/row_sum-inl.h"
#include "ops/block_tree.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

void sum_of_squares(const KernelCall& call) {
  const TensorView& x = call.in[0];
  const std::int64_t count = x.elements(), block = block_elements(call.attributes.integer("elements"));
  const std::int64_t blocks = (count + block - 1) / block, first = call.attributes.integer("begin") / block;
  auto* sums = reinterpret_cast<double*>(call.scratch.shared);
  HEDDLE_CHECK(static_cast<std::size_t>(blocks) * sizeof(double) <= call.scratch.shared_bytes);
  const std::int64_t group = std::max<std::int64_t>(1, kElementsPerBlock / block);
  for_each_block(blocks, group, [&](std::int64_t begin, std::int64_t taken) HWY_ATTR {
    for (std::int64_t b = begin; b < begin + taken; ++b)
      sums[b] = sum_of_squares_of(std::min(block, count - b * block), x.as<const float>() + b * block);
  });
  auto* out = call.out[0].as<double>();
  for_each_run(first, first + blocks, [&](std::int64_t begin, std::int64_t length) {
    double* leaves = sums + (begin - first);
    for (std::int64_t width = 1; width < length; width *= 2) {
      for (std::int64_t b = 0; b < length; b += 2 * width) leaves[b] += leaves[b + width];
    }
    *out++ = leaves[0];
  });
}

void accumulate_gradient(const KernelCall& call) {
  const FloatTag d;
  const bool add_up = adds(call);
  for_each_block(call.in[0].elements(), kElementsPerBlock, [&](std::int64_t begin, std::int64_t count) HWY_ATTR {
    const float* x = call.in[0].as<const float>() + begin;
    float* y = call.out[0].as<float>() + begin;
    for_each_vector(count, [&](std::int64_t i, auto part) HWY_ATTR {
      const auto value = load(d, x + i, part);
      store(add_up ? hn::Add(load(d, y + i, part), value) : value, d, y + i, part);
    });
  });
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu {
HWY_EXPORT(sum_of_squares);
HWY_EXPORT(accumulate_gradient);

void sum_of_squares(const KernelCall& call) { HWY_DYNAMIC_DISPATCH(sum_of_squares)(call); }
void accumulate_gradient(const KernelCall& call) { HWY_DYNAMIC_DISPATCH(accumulate_gradient)(call); }

void gradient_norm(const KernelCall& call) {
  const TensorView& sums = call.in[0];
  const double inverse_loss_scale = call.scalars.inverse_loss_scale;
  const double limit = call.scalars.max_grad_norm;
  const auto elements = call.attributes.list("elements");
  const std::int64_t ranks = call.attributes.integer("ranks", 1), tensors = sums.shape[1];
  double sum = 0.0;
  for (std::int64_t t = 0; t < tensors; ++t) {
    const std::int64_t blocks = block_count(static_cast<std::int64_t>(elements[static_cast<std::size_t>(t)]));
    const std::int64_t piece = (blocks + ranks - 1) / ranks;
    RunSum tree;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const double* run = sums.as<const double>() + (rank * tensors + t) * kMostRuns;
      for_each_run(std::min(rank * piece, blocks), std::min((rank + 1) * piece, blocks),
                   [&](std::int64_t begin, std::int64_t length) { tree.add(begin, length, *run++); });
    }
    sum += tree.total();
  }
  const double norm = std::sqrt(sum) * inverse_loss_scale;
  double factor = inverse_loss_scale;
  if (limit != 0.0) {
    const double ratio = limit / (norm + 1e-6);
    if (!(ratio >= 1.0)) factor *= ratio;  // NaN goes through
  }
  *call.out[0].as<double>() = norm;
  *call.out[1].as<float>() = static_cast<float>(factor);
}

}  // namespace heddle::cpu
#endif
