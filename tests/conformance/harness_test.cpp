// The harness against kernels that are wrong: each fault must be seen.
#include <gtest/gtest.h>

#include <cmath>

#include "base/threads.h"
#include "execute.h"

namespace heddle::conformance {
namespace {

Case addition() {
  return {.name = "",
          .in = {random(DType::f32, {9}, 1), random(DType::f32, {9}, 2)},
          .out = {output(DType::f32, {9})},
          .attributes = {},
          .scalars = {}};
}

Outputs sums(const Case& c) {
  return {elements(9, [&](std::int64_t i) { return Real(c.in[0][i]) + c.in[1][i]; })};
}

void add_right(const KernelCall& call) {
  for (int i = 0; i < 9; ++i) {
    call.out[0].as<float>()[i] = call.in[0].as<const float>()[i] + call.in[1].as<const float>()[i];
  }
}

std::string fault_of(Kernel kernel) { return compare(addition(), execute(kernel, addition(), 1), sums(addition())); }

TEST(Harness, AcceptsARightKernel) { EXPECT_EQ(fault_of(add_right), ""); }

TEST(Harness, SeesAWrongElement) {
  EXPECT_NE(fault_of([](const KernelCall& call) {
              add_right(call);
              float& last = call.out[0].as<float>()[8];
              last += 8.0f * 0x1p-23f * last;  // eight units in the last place
            }),
            "");
}

TEST(Harness, SeesAnElementThatWasNotWritten) {
  EXPECT_NE(fault_of([](const KernelCall& call) {
              const float kept = call.out[0].as<float>()[3];
              add_right(call);
              call.out[0].as<float>()[3] = kept;
            }),
            "");
}

/// Under the address sanitizer too, which else stops the test before the harness sees it.
__attribute__((no_sanitize("address"))) void write_zero(float* to) { *to = 0.0f; }

TEST(Harness, SeesAWriteBehindTheEndAndBeforeTheStart) {
  EXPECT_EQ(fault_of([](const KernelCall& call) {
              add_right(call);
              write_zero(call.out[0].as<float>() + 9);
            }),
            "memory around output 0 was changed");
  EXPECT_EQ(fault_of([](const KernelCall& call) {
              add_right(call);
              write_zero(call.in[1].as<float>() - 1);
            }),
            "memory around input 1 was changed");
}

TEST(Harness, SeesAnInputThatWasChanged) {
  EXPECT_EQ(fault_of([](const KernelCall& call) {
              add_right(call);
              call.in[1].as<float>()[2] = 0.0f;
            }),
            "input 1 was changed");
}

TEST(Harness, SeesADependenceOnThreads) {
  const Kernel kernel = [](const KernelCall& call) {
    add_right(call);
    call.out[0].as<float>()[0] += 1e-6f * static_cast<float>(call.scratch.threads + threads());
  };
  const Case c = addition();
  EXPECT_NE(compare_bits(c, execute(kernel, c, 1), execute(kernel, c, 2)), "");
}

TEST(Harness, SeesAKernelThatReadsWhatItHasOverwritten) {
  const Kernel kernel = [](const KernelCall& call) {  // y = x reversed, plus 0
    for (int i = 0; i < 9; ++i) call.out[0].as<float>()[i] = call.in[0].as<const float>()[8 - i];
  };
  const Case c = addition();
  const Alias alias{.output = 0, .input = 0};
  EXPECT_NE(compare_bits(c, execute(kernel, c, 1), execute(kernel, c, 1, {&alias, 1})), "");
}

TEST(Real, BoundsTheErrorOfASumInFloats) {
  // 1 + 1000 times 2^-25: each term is lost in f32, in double none is. The bound must cover it, and not by much.
  const auto term = [](std::int64_t i) { return Real(i == 0 ? 1.0 : 0x1p-25); };
  const Real total = sum(1001, term);
  float in_floats = 0.0f;
  for (std::int64_t i = 0; i < 1001; ++i) in_floats += static_cast<float>(term(i).value);
  const double error = std::abs(static_cast<double>(in_floats) - total.value);
  EXPECT_GT(error, 0.0);
  EXPECT_LE(error, 1001 * kUnit * total.value);
  EXPECT_DOUBLE_EQ(total.value, 1.0 + 1000 * 0x1p-25);
}

TEST(Real, BoundOfAProductCoversTheErrorsOfItsFactors) {
  const Real third = Real(1.0) / 3.0, product = third * third;
  const float in_floats = (1.0f / 3.0f) * (1.0f / 3.0f);
  EXPECT_LE(std::abs(static_cast<double>(in_floats) - product.value), product.error);
  EXPECT_LT(product.error, 4 * kUnit / 9.0);
}

}  // namespace
}  // namespace heddle::conformance
