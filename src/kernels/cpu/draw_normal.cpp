// Standard normals by Box and Muller 1958: of the four words of a Philox counter, u and v uniform in [0, 1) with 53
// bits each; r = sqrt(-2 ln(1 - u)); draws 2 c and 2 c + 1 are r cos(2 pi v) and r sin(2 pi v). No fused multiply-adds:
// instruction sets without them would round otherwise.
#include "kernels/cpu/draw_normal.h"

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/draw_normal.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, which decides what they are compiled for.
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numbers>

#include "kernels/cpu/philox-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {
namespace {

using DoubleTag = hn::ScalableTag<double>;
using DoubleVector = hn::Vec<DoubleTag>;

/// c[0] + x (c[1] + x (c[2] + ...)).
template <std::size_t N>
HWY_INLINE DoubleVector polynomial(DoubleVector x, const std::array<double, N>& c) {
  const DoubleTag d;
  auto sum = hn::Set(d, c[N - 1]);
  for (std::size_t i = N - 1; i-- > 0;) sum = hn::Add(hn::Mul(sum, x), hn::Set(d, c[i]));
  return sum;
}

/// ln x = e ln 2 + 2 artanh s with x = 2^e m, m in [sqrt(1/2), sqrt(2)), s = (m - 1) / (m + 1); |s| < 0.172, so that
/// what the series leaves out is below 2^-56 of it. For normal x > 0.
HWY_INLINE DoubleVector logarithm(DoubleVector x) {
  static constexpr std::array<double, 11> kArtanh = {1.0,      1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9, 1.0 / 11,
                                                     1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21};
  constexpr std::int64_t kHalfRoot = 0x3fe6a09e667f3bcd;  // sqrt(1/2); the fraction's 52 bits lie below the exponent
  const DoubleTag d;
  const hn::RebindToSigned<DoubleTag> integers;
  const auto above = hn::Sub(hn::BitCast(integers, x), hn::Set(integers, kHalfRoot));
  const auto fraction = hn::And(above, hn::Set(integers, (std::int64_t{1} << 52) - 1));
  const auto m = hn::BitCast(d, hn::Add(fraction, hn::Set(integers, kHalfRoot)));
  const auto e = hn::ConvertTo(d, hn::ShiftRight<52>(above));
  const auto one = hn::Set(d, 1.0);
  const auto s = hn::Div(hn::Sub(m, one), hn::Add(m, one));
  const auto artanh = hn::Mul(s, polynomial(hn::Mul(s, s), kArtanh));
  return hn::Add(hn::Mul(e, hn::Set(d, std::numbers::ln2)), hn::Add(artanh, artanh));
}

/// Of 2 pi v, v in [0, 1): by Taylor's series of the angle to the nearest quarter turn, at most pi / 4; what they leave
/// out is below 2^-58. Through references, since scalable vectors cannot be members.
HWY_INLINE void turn(DoubleVector v, DoubleVector& turned_cosine, DoubleVector& turned_sine) {
  static constexpr std::array<double, 8> kSine = {
      1.0,           -1.0 / 6,         1.0 / 120,          -1.0 / 5040,
      1.0 / 362880., -1.0 / 39916800., 1.0 / 6227020800.0, -1.0 / 1307674368000.0};
  static constexpr std::array<double, 9> kCosine = {1.0,
                                                    -1.0 / 2,
                                                    1.0 / 24,
                                                    -1.0 / 720,
                                                    1.0 / 40320,
                                                    -1.0 / 3628800,
                                                    1.0 / 479001600.0,
                                                    -1.0 / 87178291200.0,
                                                    1.0 / 20922789888000.0};
  const DoubleTag d;
  const hn::RebindToSigned<DoubleTag> integers;
  const auto quarters = hn::Round(hn::Mul(v, hn::Set(d, 4.0)));
  const auto rest = hn::Sub(v, hn::Mul(quarters, hn::Set(d, 0.25)));  // exact
  const auto angle = hn::Mul(rest, hn::Set(d, 2.0 * std::numbers::pi)), square = hn::Mul(angle, angle);
  const auto sine = hn::Mul(angle, polynomial(square, kSine)), cosine = polynomial(square, kCosine);
  // A quarter turn takes (cos, sin) to (-sin, cos), two turn both around.
  const auto number = hn::ConvertTo(integers, quarters);
  const auto is_odd = hn::RebindMask(d, hn::Eq(hn::And(number, hn::Set(integers, 1)), hn::Set(integers, 1)));
  const auto sign = hn::BitCast(d, hn::ShiftLeft<62>(hn::And(number, hn::Set(integers, 2))));
  turned_cosine = hn::Xor(hn::IfThenElse(is_odd, hn::Neg(sine), cosine), sign);
  turned_sine = hn::Xor(hn::IfThenElse(is_odd, cosine, sine), sign);
}

/// As many draws as draw_words() makes pairs of counters at once: two to a counter, from an even one on.
HWY_INLINE void draw_block(std::uint64_t key, std::uint64_t stream, std::uint64_t counter, double spread,
                           float* values) {
  const DoubleTag d;
  const hn::RebindToUnsigned<DoubleTag> bits;
  const hn::RebindToSigned<DoubleTag> integers;
  const hn::Rebind<std::uint32_t, DoubleTag> narrow;
  const hn::Rebind<float, DoubleTag> floats;
  HWY_ALIGN std::uint32_t words[4 * HWY_MAX_BYTES / sizeof(std::uint32_t)];
  draw_words(key, stream, counter, words);
  const auto uniform = [&](auto first, auto second) HWY_ATTR {
    const auto high = hn::ShiftLeft<26>(hn::ShiftRight<5>(hn::PromoteTo(bits, first)));
    const auto both = hn::Or(high, hn::ShiftRight<6>(hn::PromoteTo(bits, second)));
    return hn::Mul(hn::ConvertTo(d, hn::BitCast(integers, both)), hn::Set(d, 0x1.0p-53));
  };
  const std::size_t counters = hn::Lanes(WordTag());
  for (std::size_t i = 0; i < counters; i += hn::Lanes(d)) {
    hn::Vec<decltype(narrow)> word0, word1, word2, word3;
    hn::LoadInterleaved4(narrow, words + 4 * i, word0, word1, word2, word3);
    const auto logarithms = logarithm(hn::Sub(hn::Set(d, 1.0), uniform(word0, word1)));
    const auto radius = hn::Sqrt(hn::Mul(hn::Set(d, -2.0), logarithms));
    DoubleVector cosine, sine;
    turn(uniform(word2, word3), cosine, sine);
    const auto factor = hn::Set(d, spread);
    hn::StoreInterleaved2(hn::DemoteTo(floats, hn::Mul(hn::Mul(radius, cosine), factor)),
                          hn::DemoteTo(floats, hn::Mul(hn::Mul(radius, sine), factor)), floats, values + 2 * i);
  }
}

void draw_normal(std::uint64_t key, std::uint64_t stream, std::int64_t first, double spread, std::span<float> values) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(WordTag())), block = 2 * lanes;
  HWY_ALIGN float drawn[2 * HWY_MAX_BYTES / sizeof(float)];
  const std::int64_t end = first + static_cast<std::int64_t>(values.size());
  for (std::int64_t begin = first / block * block; begin < end; begin += block) {
    const auto counter = static_cast<std::uint64_t>(begin / 2);
    const std::int64_t from = std::max(begin, first), to = std::min(begin + block, end);
    if (to - from == block) {
      draw_block(key, stream, counter, spread, values.data() + (begin - first));
    } else {
      draw_block(key, stream, counter, spread, drawn);
      std::copy(drawn + (from - begin), drawn + (to - begin), values.data() + (from - first));
    }
  }
}

}  // namespace
}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu {

HWY_EXPORT(draw_normal);

void draw_normal(std::uint64_t key, std::uint64_t stream, std::int64_t first, double spread, std::span<float> values) {
  HWY_DYNAMIC_DISPATCH(draw_normal)(key, stream, first, spread, values);
}

}  // namespace heddle::cpu
#endif
