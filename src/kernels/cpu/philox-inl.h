// Philox 4x32-10 on vectors: each lane has its own counter. The words are those of base/random.h. Per-target include
// guard, as Highway's own -inl.h files.
#if defined(HEDDLE_KERNELS_CPU_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_CPU_PHILOX_INL_H_
#undef HEDDLE_KERNELS_CPU_PHILOX_INL_H_
#else
#define HEDDLE_KERNELS_CPU_PHILOX_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using WordTag = hn::ScalableTag<std::uint32_t>;
using WordVector = hn::Vec<WordTag>;

/// Upper and lower halves of the 64-bit products of `a` with a constant.
HWY_INLINE void multiply_wide(WordTag d, WordVector a, WordVector constant, WordVector& high, WordVector& low) {
#if HWY_TARGET == HWY_SCALAR
  const std::uint64_t wide = std::uint64_t{hn::GetLane(a)} * hn::GetLane(constant);
  high = hn::Set(d, static_cast<std::uint32_t>(wide >> 32));
  low = hn::Set(d, static_cast<std::uint32_t>(wide));
#else
  const hn::Repartition<std::uint64_t, WordTag> d64;
  const auto even = hn::MulEven(a, constant);
  const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(d64, a))), constant);
  high = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
  low = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even));
#endif
}

/// The four words of philox(key, counter1:counter0, counter_high), in place: c0 and c1 hold the lower and the upper
/// half of the counter's low part, and become words 0 and 1; words 2 and 3 go to c2 and c3.
HWY_INLINE void philox(WordTag d, std::uint64_t key, std::uint64_t counter_high, WordVector& c0, WordVector& c1,
                       WordVector& c2, WordVector& c3) {
  const auto multiplier0 = hn::Set(d, 0xD2511F53u), multiplier1 = hn::Set(d, 0xCD9E8D57u);
  auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  c2 = hn::Set(d, static_cast<std::uint32_t>(counter_high));
  c3 = hn::Set(d, static_cast<std::uint32_t>(counter_high >> 32));
  for (int round = 0; round < 10; ++round) {
    WordVector high0, low0, high1, low1;
    multiply_wide(d, c0, multiplier0, high0, low0);
    multiply_wide(d, c2, multiplier1, high1, low1);
    c0 = hn::Xor(hn::Xor(high1, c1), hn::Set(d, k0));
    c1 = low1;
    c2 = hn::Xor(hn::Xor(high0, c3), hn::Set(d, k1));
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}

/// Four vectors of words, four neighbouring ones to a counter; `counter` belongs to the first four.
HWY_INLINE void draw_words(std::uint64_t key, std::uint64_t counter_high, std::uint64_t counter, std::uint32_t* words) {
  const WordTag d;
  const auto low = static_cast<std::uint32_t>(counter), high = static_cast<std::uint32_t>(counter >> 32);
  auto word0 = hn::Add(hn::Set(d, low), hn::Iota(d, 0u));
  const auto carry = hn::RebindMask(d, hn::Lt(word0, hn::Set(d, low)));
  auto word1 = hn::Add(hn::Set(d, high), hn::IfThenElseZero(carry, hn::Set(d, 1u)));
  WordVector word2, word3;
  philox(d, key, counter_high, word0, word1, word2, word3);
  hn::StoreInterleaved4(word0, word1, word2, word3, d, words);
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
