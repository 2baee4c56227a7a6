// DoRA (Liu et al. 2024, arXiv:2402.09353).
// dora_norm: norms[o] = |W[o,:] + scaling * sum over r of B[o,r] A[r,:]|; overwrites norms f32[O]. W [O,I] of any
//   storage type (transposed: [I,O]), A [r,I], B [O,r]. O*I*r multiply-adds, a row at a time; of a transposed W some
//   columns at a time, down its rows.
// dora_scale: y = z * (m / norms) + bias overwrites y [T,O].
// Backward: dz = dy * (m / norms) overwrites; dm = sum over t of dy * z / norms and dbias = sum over t of dy add or
//   overwrite, as the call says. Columns are cut into slices, so that each sum runs over t in order on one thread.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/dora.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "kernels/cpu/blocks.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd-inl.h"
#include "quantize/decode.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

/// Elements [begin, begin + count) as floats, in `room` (with space for two blocks more) or from there on.
inline float* decode_part(const TensorView& weight, std::int64_t begin, std::int64_t count, float* room) {
  const std::int64_t elements = weight.elements(), block = block_elements(weight.dtype);
  const std::int64_t first = begin / block * block;
  const std::int64_t end = std::min(elements, (begin + count + block - 1) / block * block);
  decode(weight.dtype, weight.as<const std::byte>(), elements, first, end - first, room);
  return room + (begin - first);
}

/// dora_norm where W is [I,O].
void norms_of_columns(const KernelCall& call) {
  constexpr std::int64_t kColumns = 64, kLargestBlock = 256;
  const TensorView &weight = call.in[0], &a = call.in[1], &b = call.in[2];
  const auto scaling = static_cast<float>(call.attributes.real("scaling"));
  const std::int64_t rank = a.shape[0], inputs = a.shape[1], outputs = b.shape[0];
  HEDDLE_CHECK(static_cast<std::size_t>(rank * kColumns) * sizeof(float) <= call.scratch.bytes_per_thread);
  HEDDLE_CHECK(block_elements(weight.dtype) <= kLargestBlock);
  with_element_type(a.dtype, [&](auto* type) HWY_ATTR {
    using A = std::remove_pointer_t<decltype(type)>;
    parallel_for((outputs + kColumns - 1) / kColumns, [&](std::int64_t slice, int thread) HWY_ATTR {
      const std::int64_t first = slice * kColumns, count = std::min(kColumns, outputs - first);
      auto* factors = reinterpret_cast<float*>(call.scratch.per_thread +
                                               static_cast<std::size_t>(thread) * call.scratch.bytes_per_thread);
      for (std::int64_t k = 0; k < rank; ++k) {
        for (std::int64_t o = 0; o < count; ++o)
          factors[k * kColumns + o] = scaling * static_cast<float>(b.as<const A>()[(first + o) * rank + k]);
      }
      const FloatTag d;
      HWY_ALIGN float room[kColumns + 2 * kLargestBlock];
      double squares[kColumns] = {};
      for (std::int64_t i = 0; i < inputs; ++i) {
        float* row = decode_part(weight, i * outputs + first, count, room);
        for (std::int64_t k = 0; k < rank; ++k) {
          const auto low = hn::Set(d, static_cast<float>(a.as<const A>()[k * inputs + i]));
          for_each_vector(count, [&](std::int64_t o, auto part) HWY_ATTR {
            store(hn::MulAdd(load(d, factors + k * kColumns + o, part), low, load(d, row + o, part)), d, row + o, part);
          });
        }
        for (std::int64_t o = 0; o < count; ++o)
          squares[o] += static_cast<double>(row[o]) * static_cast<double>(row[o]);
      }
      for (std::int64_t o = 0; o < count; ++o)
        call.out[0].as<float>()[first + o] = static_cast<float>(std::sqrt(squares[o]));
    });
  });
}

void dora_norm(const KernelCall& call) {
  const TensorView &weight = call.in[0], &a = call.in[1], &b = call.in[2];
  const auto scaling = static_cast<float>(call.attributes.real("scaling"));
  if (call.attributes.integer("transposed") != 0) return norms_of_columns(call);
  const std::int64_t rank = a.shape[0], inputs = a.shape[1];
  HEDDLE_CHECK(static_cast<std::size_t>(inputs + 2 * block_elements(weight.dtype)) * sizeof(float) <=
               call.scratch.bytes_per_thread);
  with_element_type(a.dtype, [&](auto* type) HWY_ATTR {
    using A = std::remove_pointer_t<decltype(type)>;
    parallel_for(b.shape[0], [&](std::int64_t o, int thread) HWY_ATTR {
      auto* room = reinterpret_cast<float*>(call.scratch.per_thread +
                                            static_cast<std::size_t>(thread) * call.scratch.bytes_per_thread);
      float* row = decode_part(weight, o * inputs, inputs, room);
      const FloatTag d;
      for (std::int64_t k = 0; k < rank; ++k) {
        const float factor = scaling * static_cast<float>(b.as<const A>()[o * rank + k]);
        const A* from = a.as<const A>() + k * inputs;
        for_each_vector(inputs, [&](std::int64_t i, auto part) HWY_ATTR {
          store(hn::MulAdd(hn::Set(d, factor), load(d, from + i, part), load(d, row + i, part)), d, row + i, part);
        });
      }
      double squares = 0;
      for (std::int64_t i = 0; i < inputs; ++i) squares += static_cast<double>(row[i]) * static_cast<double>(row[i]);
      call.out[0].as<float>()[o] = static_cast<float>(std::sqrt(squares));
    });
  });
}

void dora_scale(const KernelCall& call) {
  const TensorView &z = call.in[0], &magnitude = call.in[1], &norms = call.in[2], &bias = call.in[3];
  const std::int64_t outputs = z.shape.back();
  with_element_type(z.dtype, [&](auto* type) HWY_ATTR {
    using A = std::remove_pointer_t<decltype(type)>;
    with_element_type(magnitude.dtype, [&](auto* magnitude_type) HWY_ATTR {
      using M = std::remove_pointer_t<decltype(magnitude_type)>;
      for_each_block(z.shape.rows(), rows_per_block(outputs), [&](std::int64_t begin, std::int64_t count) HWY_ATTR {
        const FloatTag d;
        for (std::int64_t at = begin * outputs; at < (begin + count) * outputs; at += outputs) {
          for_each_vector(outputs, [&](std::int64_t i, auto part) HWY_ATTR {
            const auto norm = hn::Max(load(d, norms.as<const float>() + i, part), hn::Set(d, 1e-30f));
            const auto factor = hn::Div(load(d, magnitude.as<const M>() + i, part), norm);
            auto y = hn::Mul(load(d, z.as<const A>() + at + i, part), factor);
            if (bias.present()) y = hn::Add(y, load(d, bias.as<const A>() + i, part));
            store(y, d, call.out[0].as<A>() + at + i, part);
          });
        }
      });
    });
  });
}

void dora_scale_backward(const KernelCall& call) {
  const TensorView &dy = call.in[0], &z = call.in[1], &magnitude = call.in[2], &norms = call.in[3];
  const TensorView &dz = call.out[0], &dmagnitude = call.out[1], &dbias = call.out[2];
  const std::int64_t outputs = z.shape.back(), rows = z.shape.rows();
  constexpr std::int64_t kColumns = 64;
  const bool is_added = adds(call);
  with_element_type(z.dtype, [&](auto* type) HWY_ATTR {
    using A = std::remove_pointer_t<decltype(type)>;
    for_each_block(outputs, kColumns, [&](std::int64_t first, std::int64_t count) HWY_ATTR {
      const FloatTag d;
      HWY_ALIGN float products[kColumns] = {}, sums[kColumns] = {};
      const std::array gradients = {std::pair{&dmagnitude, products}, std::pair{&dbias, sums}};
      for (const auto& [gradient, to] : gradients) {
        if (is_added && gradient->present()) std::copy_n(gradient->template as<const float>() + first, count, to);
      }
      for (std::int64_t at = first; at < rows * outputs; at += outputs) {
        for_each_vector(count, [&](std::int64_t i, auto part) HWY_ATTR {
          const auto norm = hn::Max(load(d, norms.as<const float>() + first + i, part), hn::Set(d, 1e-30f));
          const auto gradient = load(d, dy.as<const A>() + at + i, part);
          const auto scaled = hn::Div(load(d, z.as<const A>() + at + i, part), norm);
          store(hn::MulAdd(gradient, scaled, load(d, products + i, part)), d, products + i, part);
          store(hn::Add(gradient, load(d, sums + i, part)), d, sums + i, part);
          const auto factor = hn::Div(load(d, magnitude.as<const A>() + first + i, part), norm);
          store(hn::Mul(gradient, factor), d, dz.as<A>() + at + i, part);
        });
      }
      for (const auto& [gradient, from] : gradients) {
        if (gradient->present()) std::copy_n(from, count, gradient->template as<float>() + first);
      }
    });
  });
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu {
HWY_EXPORT(dora_norm);
HWY_EXPORT(dora_scale);
HWY_EXPORT(dora_scale_backward);

void dora_norm(const KernelCall& call) { HWY_DYNAMIC_DISPATCH(dora_norm)(call); }
void dora_scale(const KernelCall& call) { HWY_DYNAMIC_DISPATCH(dora_scale)(call); }
void dora_scale_backward(const KernelCall& call) { HWY_DYNAMIC_DISPATCH(dora_scale_backward)(call); }

}  // namespace heddle::cpu
#endif
