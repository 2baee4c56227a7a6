// y = x + m (2 u - 1), m = alpha / sqrt(L H)  (Jain et al. 2023, NEFTune, arXiv:2310.05914), L the tokens of the
// document that a row belongs to. u of element i of row t is uniform_from(word i % 4) of philox(seed, t * ceil(H/4) +
// i/4, stream << 40 ^ micro_batch). Overwrites y, which may be x. The gradient passes through.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/neftune.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, which decides what they are compiled for.
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "kernels/cpu/blocks.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/philox-inl.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {
namespace {

struct NoiseStream {
  std::uint64_t key, counter_high;
};

template <typename T>
void add_noise(const NoiseStream& stream, std::uint64_t counter, std::int64_t width, float magnitude, const T* x,
               T* y) {
  const FloatTag d;
  const WordTag words;
  const hn::RebindToSigned<FloatTag> integers;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  HWY_ALIGN std::uint32_t drawn[4 * kMaxFloatLanes];
  for (std::int64_t begin = 0; begin < width; begin += 4 * lanes, counter += static_cast<std::uint64_t>(lanes)) {
    draw_words(stream.key, stream.counter_high, counter, drawn);
    for_each_vector(std::min(4 * lanes, width - begin), [&](std::int64_t i, auto part) HWY_ATTR {
      const auto upper = hn::BitCast(integers, hn::ShiftRight<8>(hn::LoadU(words, drawn + i)));
      const auto uniform = hn::Mul(hn::ConvertTo(d, upper), hn::Set(d, 0x1.0p-24f));
      const auto centred = hn::Sub(hn::Add(uniform, uniform), hn::Set(d, 1.0f));
      const auto noise = hn::Mul(centred, hn::Set(d, magnitude));
      store(hn::Add(load(d, x + begin + i, part), noise), d, y + begin + i, part);
    });
  }
}

void neftune(const KernelCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  const std::int64_t width = x.shape.back(), quads = (width + 3) / 4;
  const auto* starts = call.in[1].as<const std::int32_t>();
  const auto* end = starts + call.scalars.documents + 1;
  const double alpha = call.attributes.real("alpha");
  const auto stream = static_cast<std::uint64_t>(call.attributes.integer("stream"));
  const NoiseStream noise{call.scalars.seed, (stream << 40) ^ call.scalars.micro_batch};
  with_element_type(x.dtype, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    for_each_block(x.shape.rows(), rows_per_block(width), [&](std::int64_t begin, std::int64_t count) {
      for (std::int64_t t = begin; t < begin + count; ++t) {
        const auto* next = std::upper_bound(starts, end, static_cast<std::int32_t>(t));
        const double length = next[0] - next[-1];
        const auto magnitude = static_cast<float>(alpha / std::sqrt(length * static_cast<double>(width)));
        add_noise(noise, static_cast<std::uint64_t>(t * quads), width, magnitude, x.as<const T>() + t * width,
                  y.as<T>() + t * width);
      }
    });
  });
}

}  // namespace
}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu {

HWY_EXPORT(neftune);

void neftune(const KernelCall& call) { HWY_DYNAMIC_DISPATCH(neftune)(call); }

}  // namespace heddle::cpu
#endif
