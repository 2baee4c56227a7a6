// y = x / (1 - p) where kept, else 0. Element i of row t, counted from first_row on, is kept by word (i % 4) of
// philox(seed, t * ceil(H/4) + i/4, stream << 40 ^ micro_batch): uniform_from(word) >= p. Srivastava et al. 2014.
// Overwrites y, which may be x. The backward is the same operation on dy.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/dropout.cpp"
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

struct Keeping {
  std::uint64_t key, counter_high;
  std::uint32_t threshold;  // kept where word >> 8 >= threshold = ceil(p * 2^24)
  float factor;             // 1 / (1 - p)
};

template <typename T>
void drop_row(const Keeping& keeping, std::uint64_t counter, std::int64_t width, const T* x, T* y) {
  const FloatTag d;
  const WordTag words;
  const hn::RebindToSigned<FloatTag> integers;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, keeping.factor);
  const auto below = hn::Set(integers, static_cast<std::int32_t>(keeping.threshold) - 1);
  HWY_ALIGN std::uint32_t drawn[4 * kMaxFloatLanes];
  const auto keep = [&](FloatVector value, const std::uint32_t* from) HWY_ATTR {
    const auto upper = hn::BitCast(integers, hn::ShiftRight<8>(hn::LoadU(words, from)));
    return hn::IfThenElseZero(hn::RebindMask(d, hn::Gt(upper, below)), hn::Mul(value, factor));
  };
  for (std::int64_t begin = 0; begin < width; begin += 4 * lanes, counter += static_cast<std::uint64_t>(lanes)) {
    draw_words(keeping.key, keeping.counter_high, counter, drawn);
    const std::int64_t end = std::min(begin + 4 * lanes, width);
    std::int64_t i = begin;
    for (; i + lanes <= end; i += lanes) store(keep(load(d, x + i), drawn + (i - begin)), d, y + i);
    if (i < end) {
      const auto rest = static_cast<std::size_t>(end - i);
      store_first(keep(load_first(d, x + i, rest), drawn + (i - begin)), d, y + i, rest);
    }
  }
}

void dropout(const KernelCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  const std::int64_t width = x.shape.back(), quads = (width + 3) / 4;
  const double p = call.attributes.real("p");
  const std::int64_t first_row = call.attributes.integer("first_row");
  const auto stream = static_cast<std::uint64_t>(call.attributes.integer("stream"));
  const Keeping keeping{call.scalars.seed, (stream << 40) ^ call.scalars.micro_batch,
                        static_cast<std::uint32_t>(std::ceil(p * 0x1.0p24)), static_cast<float>(1.0 / (1.0 - p))};
  with_element_type(x.dtype, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    for_each_block(x.shape.rows(), rows_per_block(width), [&](std::int64_t begin, std::int64_t count) {
      for (std::int64_t t = begin; t < begin + count; ++t) {
        drop_row(keeping, static_cast<std::uint64_t>((first_row + t) * quads), width, x.as<const T>() + t * width,
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

HWY_EXPORT(dropout);

void dropout(const KernelCall& call) { HWY_DYNAMIC_DISPATCH(dropout)(call); }

}  // namespace heddle::cpu
#endif
