// AdamW with moments of eight bits, as bitsandbytes' AdamW8bit computes it for one tensor (Dettmers et al. 2022,
// arXiv:2110.02861): blocks of 256 elements, of each moment a code an element (dynamic_map.h) and the greatest
// magnitude of the block.
//   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g g;  w *= 1 - lr * weight_decay
//   w -= (lr / bias_correction1) * m / (sqrt(v) / sqrt(bias_correction2) + epsilon)
// with m and v as they were before they are coded again. A tensor's first element is a block's first. In f32 without
// fused multiply-add: the same bits on every instruction set. A block of zeros has scale 1, as bitsandbytes gives it.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/adamw_8bit.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/blocks.h"
#include "kernels/cpu/dynamic_map.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/update-inl.h"

#ifndef HEDDLE_KERNELS_CPU_ADAMW_8BIT_ONCE
#define HEDDLE_KERNELS_CPU_ADAMW_8BIT_ONCE
namespace heddle::cpu {
namespace {

constexpr std::int64_t kBlock = 256;

/// One moment in memory: codes, and the scale of each block.
struct Moment {
  const DynamicMap& map;
  std::uint8_t* codes;
  float* scales;
};

}  // namespace
}  // namespace heddle::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {
namespace {

struct Constants {
  float factor, decay, beta1, one_minus_beta1, beta2, one_minus_beta2, sqrt_bias_correction2, epsilon, minus_step;
};

Constants constants_of(const KernelCall& call) {
  const Attributes& attributes = call.attributes;
  const double lr = learning_rate(call);
  const double beta1 = attributes.real("beta1"), beta2 = attributes.real("beta2");
  return {.factor = gradient_factor(call),
          .decay = kept_by_decay(call, lr),
          .beta1 = static_cast<float>(beta1),
          .one_minus_beta1 = static_cast<float>(1.0 - beta1),
          .beta2 = static_cast<float>(beta2),
          .one_minus_beta2 = static_cast<float>(1.0 - beta2),
          .sqrt_bias_correction2 = static_cast<float>(std::sqrt(call.scalars.bias_correction2)),
          .epsilon = static_cast<float>(attributes.real("epsilon")),
          .minus_step = static_cast<float>(-lr / call.scalars.bias_correction1)};
}

/// The values of a block's codes; whole vectors of them are written.
void decode(const Moment& moment, std::int64_t block, std::int64_t count, float* values) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> integers;
  const hn::Rebind<std::uint8_t, FloatTag> bytes;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::uint8_t* codes = moment.codes + block * kBlock;
  const auto scale = hn::Set(d, moment.scales[block]);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto index = hn::PromoteTo(integers, hn::LoadU(bytes, codes + i));
    hn::StoreU(hn::Mul(hn::GatherIndex(d, moment.map.values(), index), scale), d, values + i);
  }
  for (; i < count; ++i) values[i] = moment.map.value(codes[i]) * moment.scales[block];
}

float greatest_magnitude(std::int64_t count, const float* values) {
  const FloatTag d;
  auto greatest = hn::Zero(d);
  for_each_vector(count, [&](std::int64_t i, auto part)
                             HWY_ATTR { greatest = hn::Max(greatest, hn::Abs(load(d, values + i, part))); });
  return hn::GetLane(hn::MaxOfLanes(d, greatest));
}

/// The codes of values in [-1, 1], as DynamicMap::code.
void code_vector(const DynamicMap& map, FloatVector x, std::uint8_t* codes) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> integers;
  const hn::Rebind<std::uint8_t, FloatTag> bytes;
  const auto bits = hn::BitCast(integers, x);
  const auto magnitude = hn::ShiftRight<DynamicMap::kShift>(hn::And(bits, hn::Set(integers, 0x7fffffff)));
  const auto cell = hn::Sub(magnitude, hn::Set(integers, DynamicMap::kFirstCell));
  const auto bounded = hn::Min(hn::Max(cell, hn::Zero(integers)), hn::Set(integers, DynamicMap::kCells - 1));
  const auto negative = hn::And(hn::ShiftRight<31>(bits), hn::Set(integers, DynamicMap::kCells));
  const auto index = hn::Add(bounded, negative);
  const auto above = hn::RebindMask(integers, hn::Gt(x, hn::GatherIndex(d, map.boundaries(), index)));
  const auto code =
      hn::Add(hn::GatherIndex(integers, map.codes(), index), hn::IfThenElseZero(above, hn::Set(integers, 1)));
  hn::StoreU(hn::DemoteTo(bytes, code), bytes, codes);
}

void encode(const Moment& moment, std::int64_t block, std::int64_t count, const float* values) {
  const FloatTag d;
  const float greatest = greatest_magnitude(count, values), scale = greatest == 0.0f ? 1.0f : greatest;
  moment.scales[block] = scale;
  std::uint8_t* codes = moment.codes + block * kBlock;
  const auto divisor = hn::Set(d, scale);
  for_each_vector(count, [&](std::int64_t i, auto part) HWY_ATTR {
    const auto x = hn::Div(load(d, values + i, part), divisor);
    if constexpr (std::is_same_v<decltype(part), Whole>) {
      code_vector(moment.map, x, codes + i);
    } else {
      HWY_ALIGN std::uint8_t last[kMaxFloatLanes];
      code_vector(moment.map, x, last);
      std::memcpy(codes + i, last, part.count);
    }
  });
}

/// The moments m and v of `count` elements, and their weights.
template <typename A>
void update_block(const Constants& c, std::int64_t count, const float* gradient, float* m, float* v, float* weights,
                  A* copy, bool moves) {
  const FloatTag d;
  for_each_vector(count, [&](std::int64_t i, auto part) HWY_ATTR {
    const auto g = hn::Mul(load(d, gradient + i, part), hn::Set(d, c.factor));
    auto first = hn::Mul(load(d, m + i, part), hn::Set(d, c.beta1));
    first = hn::Add(first, hn::Mul(hn::Set(d, c.one_minus_beta1), g));
    auto second = hn::Mul(load(d, v + i, part), hn::Set(d, c.beta2));
    second = hn::Add(second, hn::Mul(hn::Mul(hn::Set(d, c.one_minus_beta2), g), g));
    store(first, d, m + i, part);
    store(second, d, v + i, part);
    const auto root = hn::Div(hn::Sqrt(second), hn::Set(d, c.sqrt_bias_correction2));
    const auto step = hn::Div(hn::Mul(hn::Set(d, c.minus_step), first), hn::Add(root, hn::Set(d, c.epsilon)));
    auto w = load(d, weights + i, part);
    if (moves) w = hn::Add(hn::Mul(w, hn::Set(d, c.decay)), step);  // as step_weights()
    if (moves) store(w, d, weights + i, part);
    if (copy != nullptr) store(w, d, copy + i, part);
  });
}

}  // namespace

void adamw_8bit(const KernelCall& call) {
  const TensorView& parameter = call.out[0];
  const bool has_master = call.out[1].present(), moves = learning_rate(call) != 0.0;
  HEDDLE_CHECK(has_master || parameter.dtype == DType::f32);
  auto* weights = has_master ? call.out[1].as<float>() : parameter.as<float>();
  const auto* gradient = call.in[0].as<const float>();
  const Moment first{DynamicMap::signed_map(), call.out[2].as<std::uint8_t>(), call.out[3].as<float>()};
  const Moment second{DynamicMap::unsigned_map(), call.out[4].as<std::uint8_t>(), call.out[5].as<float>()};
  const Constants c = constants_of(call);
  static_assert(kElementsPerBlock % kBlock == 0);
  with_element_type(parameter.dtype, [&](auto* type) HWY_ATTR {
    using A = std::remove_pointer_t<decltype(type)>;
    A* copy = has_master ? parameter.as<A>() : nullptr;
    for_each_block(call.in[0].elements(), kElementsPerBlock, [&](std::int64_t begin, std::int64_t taken) HWY_ATTR {
      HWY_ALIGN float m[kBlock];
      HWY_ALIGN float v[kBlock];
      for (std::int64_t at = begin; at < begin + taken; at += kBlock) {
        const std::int64_t count = std::min(kBlock, begin + taken - at), block = at / kBlock;
        decode(first, block, count, m);
        decode(second, block, count, v);
        update_block(c, count, gradient + at, m, v, weights + at, copy == nullptr ? copy : copy + at, moves);
        encode(first, block, count, m);
        encode(second, block, count, v);
      }
    });
  });
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu {
HWY_EXPORT(adamw_8bit);

void adamw_8bit(const KernelCall& call) { HWY_DYNAMIC_DISPATCH(adamw_8bit)(call); }

}  // namespace heddle::cpu
#endif
