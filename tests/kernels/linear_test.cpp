#include <gtest/gtest.h>

#include "base/error.h"
#include "instruction_sets.h"
#include "kernels/cpu/kernels.h"
#include "ops/token_sums.h"
#include "product_operands.h"

namespace heddle {
namespace {

using test::random_tensor;
using test::run_kernel;
using test::Tensor;
using test::ThreadsScope;
using test::whole_tensor;

struct Extents {
  std::int64_t tokens, inputs, outputs;
};
constexpr Extents kExtents[] = {{1, 1, 1}, {7, 5, 3}, {1, 64, 130}, {65, 33, 47}, {130, 350, 97}};
constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16};

std::size_t at(std::int64_t row, std::int64_t column, std::int64_t width) {
  return static_cast<std::size_t>(row * width + column);
}

Shape weight_shape(const Extents& e, bool transposed) {
  return transposed ? Shape{e.inputs, e.outputs} : Shape{e.outputs, e.inputs};
}

/// Element [o, i] of a weight in either layout.
double weight_at(const std::vector<double>& weight, const Extents& e, bool transposed, std::int64_t o, std::int64_t i) {
  return transposed ? weight[at(i, o, e.outputs)] : weight[at(o, i, e.inputs)];
}

Tensor rounded(DType dtype, Shape shape, const std::vector<double>& values) {
  Tensor tensor(dtype, shape);
  tensor.set(values);
  return tensor;
}

Attributes attributes_of(bool transposed, Accumulate accumulate = Accumulate::overwrite) {
  return {{"transposed", std::int64_t{transposed}}, {"accumulate", static_cast<std::int64_t>(accumulate)}};
}

// Operands are whole numbers, so that all sums are exact and only the last rounding, to the output's type, remains.

TEST(Linear, IsXTimesWTransposedPlusBiasPlusResidual) {
  for (const Extents& e : kExtents) {
    for (const DType dtype : kTypes) {
      for (const bool transposed : {false, true}) {
        for (const bool with_bias : {false, true}) {
          for (const bool with_residual : {false, true}) {
            Tensor x = whole_tensor(dtype, {e.tokens, e.inputs}, 1);
            Tensor weight = whole_tensor(dtype, weight_shape(e, transposed), 2);
            Tensor bias = whole_tensor(dtype, {e.outputs}, 3);
            Tensor residual = whole_tensor(dtype, {e.tokens, e.outputs}, 4);
            const auto xs = x.values(), ws = weight.values(), bs = bias.values(), rs = residual.values();
            std::vector<double> expected(rs.size());
            for (std::int64_t t = 0; t < e.tokens; ++t) {
              for (std::int64_t o = 0; o < e.outputs; ++o) {
                double sum = with_bias ? bs[static_cast<std::size_t>(o)] : 0.0;
                if (with_residual) sum += rs[at(t, o, e.outputs)];
                for (std::int64_t i = 0; i < e.inputs; ++i) {
                  sum += xs[at(t, i, e.inputs)] * weight_at(ws, e, transposed, o, i);
                }
                expected[at(t, o, e.outputs)] = sum;
              }
            }
            // y is the residual's memory, as operations.md allows.
            run_kernel(cpu::linear,
                       {x.view(), weight.view(), with_bias ? bias.view() : TensorView{},
                        with_residual ? residual.view() : TensorView{}},
                       {residual.view()}, attributes_of(transposed));
            ASSERT_EQ(residual.values(), rounded(dtype, residual.shape, expected).values());
          }
        }
      }
    }
  }
}

TEST(Linear, LogitsOfNarrowOperandsMayBeF32) {
  Tensor x = whole_tensor(DType::bf16, {3, 100}, 1), weight = whole_tensor(DType::bf16, {50, 100}, 2);
  Tensor y(DType::f32, {3, 50});
  run_kernel(cpu::linear, {x.view(), weight.view(), {}, {}}, {y.view()}, {});
  const auto xs = x.values(), ws = weight.values(), ys = y.values();
  for (std::int64_t t = 0; t < 3; ++t) {
    for (std::int64_t o = 0; o < 50; ++o) {
      double sum = 0.0;
      for (std::int64_t i = 0; i < 100; ++i) sum += xs[at(t, i, 100)] * ws[at(o, i, 100)];
      ASSERT_EQ(ys[at(t, o, 50)], sum);
    }
  }
}

TEST(Linear, ResidualOfAnotherTypeThanYIsRefused) {
  Tensor x = whole_tensor(DType::bf16, {3, 4}, 1), weight = whole_tensor(DType::bf16, {5, 4}, 2);
  Tensor residual(DType::bf16, {3, 5}), y(DType::f32, {3, 5});
  EXPECT_THROW(run_kernel(cpu::linear, {x.view(), weight.view(), {}, residual.view()}, {y.view()}, {}), Error);
}

/// Outputs of products of one x, together or one after another. `types` are those of the weights.
std::vector<std::vector<std::byte>> grouped(Tensor x, const std::vector<DType>& types, const Extents& e,
                                            bool together) {
  std::vector<Tensor> weights, biases, results;
  for (std::size_t i = 0; i < types.size(); ++i) {
    const std::int64_t outputs = e.outputs / static_cast<std::int64_t>(i + 1);
    weights.push_back(random_tensor(types[i], {outputs, e.inputs}, 10 + i));
    biases.push_back(random_tensor(x.dtype, {outputs}, 20 + i));
    results.emplace_back(x.dtype, Shape{e.tokens, outputs});
  }
  std::vector<TensorView> in = {x.view()}, out;
  for (std::size_t i = 0; i < types.size(); ++i) {
    in.insert(in.end(), {weights[i].view(), i == 1 ? TensorView{} : biases[i].view()});
    out.push_back(results[i].view());
    if (!together) run_kernel(cpu::linear, {x.view(), in[1 + 2 * i], in[2 + 2 * i], {}}, {out[i]}, {});
  }
  if (together) run_kernel(cpu::linear_group, in, out, {});
  std::vector<std::vector<std::byte>> bytes;
  for (const Tensor& result : results) bytes.push_back(result.bytes);
  return bytes;
}

TEST(LinearGroup, HasTheBitsOfEachProductAlone) {
  constexpr DType f32 = DType::f32, bf16 = DType::bf16, f16 = DType::f16;
  struct Types {
    DType x;
    std::vector<DType> weights;
  };
  for (const int threads : {1, 3}) {
    const ThreadsScope scope(threads);
    // Columns short of a strip; columns of four strips and a part; depth of several blocks; rows that are packed.
    for (const Extents& e : {Extents{1, 7, 9}, {1, 64, 70}, {1, 1537, 130}, {3, 40, 33}}) {
      for (const Types& types : {Types{f32, {f32, f32, f32}},
                                 {bf16, {bf16, bf16}},
                                 {f32, {bf16, bf16}},
                                 {f32, {f32, bf16, f16}},
                                 {f16, {f16, f16}},
                                 {f32, {f32, f32, f32, f32, f32}}}) {
        const Tensor x = random_tensor(types.x, {e.tokens, e.inputs}, 1);
        test::with_each_way_to_multiply([&](const char* name) {
          EXPECT_EQ(grouped(x, types.weights, e, true), grouped(x, types.weights, e, false))
              << name << ' ' << e.tokens << 'x' << e.inputs << 'x' << e.outputs << ", " << threads << " threads";
        });
      }
    }
  }
}

TEST(LinearBackwardInput, IsDyTimesWPlusAddend) {
  for (const Extents& e : kExtents) {
    for (const DType dtype : kTypes) {
      for (const bool transposed : {false, true}) {
        for (const bool with_addend : {false, true}) {
          Tensor dy = whole_tensor(dtype, {e.tokens, e.outputs}, 1);
          Tensor weight = whole_tensor(dtype, weight_shape(e, transposed), 2);
          Tensor addend = whole_tensor(dtype, {e.tokens, e.inputs}, 3);
          const auto ds = dy.values(), ws = weight.values(), as = addend.values();
          std::vector<double> expected(as.size());
          for (std::int64_t t = 0; t < e.tokens; ++t) {
            for (std::int64_t i = 0; i < e.inputs; ++i) {
              double sum = with_addend ? as[at(t, i, e.inputs)] : 0.0;
              for (std::int64_t o = 0; o < e.outputs; ++o) {
                sum += ds[at(t, o, e.outputs)] * weight_at(ws, e, transposed, o, i);
              }
              expected[at(t, i, e.inputs)] = sum;
            }
          }
          run_kernel(cpu::linear_backward_input, {dy.view(), weight.view(), with_addend ? addend.view() : TensorView{}},
                     {addend.view()}, attributes_of(transposed));
          ASSERT_EQ(addend.values(), rounded(dtype, addend.shape, expected).values());
        }
      }
    }
  }
}

TEST(LinearBackwardWeight, OverwritesOrAddsAsTheCallSays) {
  for (const Extents& e : kExtents) {
    for (const DType dtype : kTypes) {
      for (const bool transposed : {false, true}) {
        for (const Accumulate mode : {Accumulate::overwrite, Accumulate::add, Accumulate::add_after_first}) {
          for (const bool first : {false, true}) {
            const bool adds = mode == Accumulate::add || (mode == Accumulate::add_after_first && !first);
            Tensor dy = whole_tensor(dtype, {e.tokens, e.outputs}, 1);
            Tensor x = whole_tensor(dtype, {e.tokens, e.inputs}, 2);
            Tensor dweight = whole_tensor(DType::f32, weight_shape(e, transposed), 3);
            Tensor dbias = whole_tensor(DType::f32, {e.outputs}, 4);
            const auto ds = dy.values(), xs = x.values();
            auto dweight_expected = dweight.values(), dbias_expected = dbias.values();
            for (std::int64_t o = 0; o < e.outputs; ++o) {
              double sum = adds ? dbias_expected[static_cast<std::size_t>(o)] : 0.0;
              for (std::int64_t t = 0; t < e.tokens; ++t) sum += ds[at(t, o, e.outputs)];
              dbias_expected[static_cast<std::size_t>(o)] = sum;
              for (std::int64_t i = 0; i < e.inputs; ++i) {
                double& element =
                    transposed ? dweight_expected[at(i, o, e.outputs)] : dweight_expected[at(o, i, e.inputs)];
                sum = adds ? element : 0.0;
                for (std::int64_t t = 0; t < e.tokens; ++t) sum += ds[at(t, o, e.outputs)] * xs[at(t, i, e.inputs)];
                element = sum;
              }
            }
            Scalars scalars;
            scalars.first_micro_batch = first;
            run_kernel(cpu::linear_backward_weight, {dy.view(), x.view()}, {dweight.view(), dbias.view()},
                       attributes_of(transposed, mode), scalars);
            ASSERT_EQ(dweight.values(), dweight_expected);
            ASSERT_EQ(dbias.values(), dbias_expected);
          }
        }
      }
    }
  }
}

TEST(LinearBackwardWeight, AStreamCutAtBlocksOfTokensGivesTheSameBits) {
  constexpr std::int64_t kTokens = 3 * kTokenSumBlock + 50, kInputs = 35, kOutputs = 53;
  for (const DType dtype : kTypes) {
    for (const bool transposed : {false, true}) {
      Tensor dy = random_tensor(dtype, {kTokens, kOutputs}, 1), x = random_tensor(dtype, {kTokens, kInputs}, 2);
      const Shape shape = weight_shape({kTokens, kInputs, kOutputs}, transposed);
      Tensor dweight = random_tensor(DType::f32, shape, 3), dbias = random_tensor(DType::f32, {kOutputs}, 4);
      Tensor cut_dweight = dweight, cut_dbias = dbias;
      const Attributes adding = attributes_of(transposed, Accumulate::add);
      run_kernel(cpu::linear_backward_weight, {dy.view(), x.view()}, {dweight.view(), dbias.view()}, adding);
      const auto rows = [](Tensor& of, std::int64_t begin, std::int64_t end) {
        TensorView view = of.view();
        view.data = view.as<std::byte>() + begin * of.shape[1] * static_cast<std::int64_t>(dtype_bytes(of.dtype));
        view.shape[0] = end - begin;
        return view;
      };
      for (const auto& [begin, end] :
           {std::pair{std::int64_t{0}, 2 * kTokenSumBlock}, std::pair{2 * kTokenSumBlock, kTokens}}) {
        run_kernel(cpu::linear_backward_weight, {rows(dy, begin, end), rows(x, begin, end)},
                   {cut_dweight.view(), cut_dbias.view()}, adding);
      }
      EXPECT_EQ(cut_dweight.bytes, dweight.bytes);
      EXPECT_EQ(cut_dbias.bytes, dbias.bytes);
    }
  }
}

TEST(LinearBackwardWeight, DbiasMayBeAbsent) {
  Tensor dy = whole_tensor(DType::f32, {2, 1}, 1), x = whole_tensor(DType::f32, {2, 1}, 2);
  Tensor dweight(DType::f32, {1, 1});
  run_kernel(cpu::linear_backward_weight, {dy.view(), x.view()}, {dweight.view(), {}}, {});
  EXPECT_EQ(dweight.values()[0], dy.values()[0] * x.values()[0] + dy.values()[1] * x.values()[1]);
}

TEST(Linear, BitsOfAllThreeProductsAreThoseOfOneThread) {
  constexpr Extents e = {70, 350, 97};
  std::vector<std::vector<std::byte>> first;
  for (const int count : {1, 2, 3, 4}) {
    const ThreadsScope scope(count);
    Tensor x = random_tensor(DType::bf16, {e.tokens, e.inputs}, 1),
           dy = random_tensor(DType::bf16, {e.tokens, e.outputs}, 2);
    Tensor weight = random_tensor(DType::bf16, {e.outputs, e.inputs}, 3),
           bias = random_tensor(DType::bf16, {e.outputs}, 4);
    Tensor y(DType::bf16, dy.shape), dx(DType::bf16, x.shape), dweight(DType::f32, weight.shape),
        dbias(DType::f32, bias.shape);
    run_kernel(cpu::linear, {x.view(), weight.view(), bias.view(), {}}, {y.view()}, {});
    run_kernel(cpu::linear_backward_input, {dy.view(), weight.view(), {}}, {dx.view()}, {});
    run_kernel(cpu::linear_backward_weight, {dy.view(), x.view()}, {dweight.view(), dbias.view()}, {});
    const std::vector<std::vector<std::byte>> results = {y.bytes, dx.bytes, dweight.bytes, dbias.bytes};
    if (first.empty()) first = results;
    ASSERT_EQ(results, first) << count << " threads";
  }
}

}  // namespace
}  // namespace heddle
