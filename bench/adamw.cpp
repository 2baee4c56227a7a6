// The AdamW kernel over many values, and the memory bandwidth with the same streams, a call at a time.
//   bench_adamw [millions of values] [threads]
// Reads names of works from standard input, a line each, and answers each with `MILLISECONDS BYTES` of one call;
// bench/cpu_adam.py sets them beside other programs, in turn.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <string>

#include "base/threads.h"
#include "kernels/cpu/blocks.h"
#include "kernels/cpu/kernels.h"
#include "measure.h"
#include "tiers/arena.h"

namespace {

using namespace heddle;
/// Values of one kind, all of a value, so that every page is there.
TensorView filled(const Arena& arena, DType type, std::int64_t count, float value) {
  if (type == DType::f32) {
    std::fill_n(reinterpret_cast<float*>(arena.data()), count, value);
  } else {
    std::fill_n(reinterpret_cast<BFloat16*>(arena.data()), count, BFloat16(value));
  }
  return {arena.data(), type, {count}};
}

#if defined(__x86_64__)
#define HEDDLE_WIDEST_VECTORS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define HEDDLE_WIDEST_VECTORS
#endif

/// Reads four streams and writes three of them back, as AdamW does, with as little arithmetic as there can be; in the
/// processor's widest vectors, since with narrow ones a core has too few lines under way to keep up with its memory.
HEDDLE_WIDEST_VECTORS void add_to_three(std::int64_t count, const float* __restrict__ g, float* __restrict__ w,
                                        float* __restrict__ m, float* __restrict__ v) {
  for (std::int64_t i = 0; i < count; ++i) {
    w[i] += g[i];
    m[i] += g[i];
    v[i] += g[i];
  }
}

void stream(std::int64_t count, const float* gradient, float* weight, float* mean, float* variance) {
  cpu::for_each_block(count, cpu::long_block(count), [&](std::int64_t begin, std::int64_t block) {
    add_to_three(block, gradient + begin, weight + begin, mean + begin, variance + begin);
  });
}

/// The kernel with all in fp32, with the weights in bf16 too, and with gradients in bf16 besides.
void serve(std::int64_t count) {
  const auto values = static_cast<double>(count);
  const auto bytes = static_cast<std::size_t>(count) * 4;
  const Arena g_memory(bytes, "g"), w_memory(bytes, "w"), m_memory(bytes, "m"), v_memory(bytes, "v"),
      copy_memory(bytes / 2, "copy"), half_memory(bytes / 2, "g in bf16");
  TensorView g = filled(g_memory, DType::f32, count, 0.5f), w = filled(w_memory, DType::f32, count, 1.0f),
             m = filled(m_memory, DType::f32, count, 0.0f), v = filled(v_memory, DType::f32, count, 0.1f),
             copy = filled(copy_memory, DType::bf16, count, 1.0f), half = filled(half_memory, DType::bf16, count, 0.5f);
  float one = 1.0f;
  const TensorView factor{reinterpret_cast<std::byte*>(&one), DType::f32, {1}};
  const Attributes attributes = {{"beta1", 0.9}, {"beta2", 0.999}, {"epsilon", 1e-8}, {"weight_decay", 0.01}};
  Scalars scalars;
  scalars.learning_rate = 1e-4;
  scalars.bias_correction1 = 0.5;
  scalars.bias_correction2 = 0.5;
  const auto step = [&](const TensorView& gradient, const TensorView& parameter, const TensorView& master) {
    const TensorView in[] = {gradient, factor}, out[] = {parameter, master, m, v};
    cpu::adamw({.in = in, .out = out, .attributes = attributes, .scalars = scalars, .scratch = {}});
  };
  struct Work {
    double bytes;
    std::function<void()> call;
  };
  const std::map<std::string, Work> works = {
      {"streams", {28 * values, [&] { stream(count, g.as<float>(), w.as<float>(), m.as<float>(), v.as<float>()); }}},
      {"fp32", {28 * values, [&] { step(g, w, {}); }}},
      {"fp32-to-bf16", {30 * values, [&] { step(g, copy, w); }}},
      {"bf16-to-bf16", {28 * values, [&] { step(half, copy, w); }}}};
  for (std::string name; std::getline(std::cin, name);) {
    const Work& work = works.at(name);
    fmt::print("{:.3f} {:.0f}\n", bench::seconds_of(work.call).wall * 1e3, work.bytes);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int count, char** arguments) {
  const auto number = [&](int index, double otherwise) {
    return count > index ? std::atof(arguments[index]) : otherwise;
  };
  heddle::set_threads(static_cast<int>(number(2, heddle::available_cores())));
  serve(static_cast<std::int64_t>(number(1, 100) * 1e6));
  return 0;
}
