// Products with a quantized weight against the same products with the weight decoded to f32 by quantize/decode.h: the
// same bits, for every type and form.
#include "kernels/cpu/quantized.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/error.h"
#include "instruction_sets.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/matmul.h"
#include "product_operands.h"
#include "quantize/decode.h"
#include "quantize/four_bit.h"

namespace heddle {
namespace {

using cpu::MatrixProduct;
using test::random_tensor;
using test::run_kernel;
using test::ScratchMemory;
using test::Tensor;
using test::ThreadsScope;

constexpr DType kQuantized[] = {DType::q4_0, DType::q4_1,       DType::q5_0,   DType::q5_1,
                                DType::q8_0, DType::q2_k,       DType::q3_k,   DType::q4_k,
                                DType::q5_k, DType::q6_k,       DType::iq4_nl, DType::iq4_xs,
                                DType::nf4,  DType::nf4_double, DType::fp4,    DType::fp4_double};

/// A weight [rows, columns] in both forms. Its bytes are random: every code and scale occurs, also negative scales.
struct Weight {
  Weight(DType type, std::int64_t rows, std::int64_t columns, std::uint64_t seed = 1)
      : dtype(type), shape{rows, columns}, decoded(DType::f32, shape) {
    const std::int64_t elements = shape.elements();
    bytes.resize(static_cast<std::size_t>(storage_bytes(type, elements)));
    Random random(seed, 11);
    if (is_four_bit(type)) {
      const Tensor values = random_tensor(DType::f32, shape, seed);
      FourBitEncoder encoder(type, elements, bytes);
      encoder.encode(0, {reinterpret_cast<const float*>(values.bytes.data()), static_cast<std::size_t>(elements)});
      encoder.finish();
    } else {
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.below(256));
      const std::int64_t block_bytes = storage_bytes(type, block_elements(type));
      for (std::size_t block = 0; block < bytes.size(); block += static_cast<std::size_t>(block_bytes)) {
        for (const std::int64_t scale : scales_of(type)) {
          const Float16 value(static_cast<float>(random.uniform()) - 0.5f);
          std::memcpy(bytes.data() + block + scale, &value, sizeof(value));
        }
      }
    }
    decode(type, bytes.data(), elements, 0, elements, decoded.view().as<float>());
  }

  /// Where a block has its scales in fp16, which must not be NaN or infinite.
  static std::vector<std::int64_t> scales_of(DType type) {
    switch (type) {
      case DType::q4_1:
      case DType::q5_1:
      case DType::q4_k:
      case DType::q5_k: return {0, 2};
      case DType::q2_k: return {80, 82};
      case DType::q3_k: return {108};
      case DType::q6_k: return {208};
      default: return {0};
    }
  }
  TensorView view() { return {bytes.data(), dtype, shape}; }

  DType dtype;
  Shape shape;
  std::vector<std::byte> bytes;
  Tensor decoded;
};

/// Widths of rows that the type allows: whole blocks; any for four bits, whose blocks run over the ends of rows.
std::vector<std::int64_t> widths(DType type) {
  if (is_four_bit(type)) return {1, 37, 576, 1000, 1088};
  const std::int64_t block = block_elements(type);
  return {block, 3 * block, block == 32 ? 1056 : 1536};  // the last: blocks of depth end inside units
}

std::string describe(const Weight& weight, std::int64_t tokens, DType activation) {
  return std::string(torch_name(weight.dtype)) + " " + weight.shape.text() + ", " + std::to_string(tokens) +
         " tokens in " + std::string(torch_name(activation));
}

template <typename Body>
void for_each_case(const Body& body) {
  for (const DType type : kQuantized) {
    for (const std::int64_t width : widths(type)) {
      for (const std::int64_t rows : {1, 31, 130}) {
        Weight weight(type, rows, width);
        for (const std::int64_t tokens : {1, 2, 67}) {
          for (const DType activation : {DType::f32, DType::bf16}) {
            SCOPED_TRACE(describe(weight, tokens, activation));
            body(weight, tokens, activation);
            if (testing::Test::HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST(QuantizedDecoder, RunsHaveTheBitsOfThePlainDecoderOnEveryInstructionSet) {
  test::with_each_instruction_set([](const char* name) {
    for (const DType type : kQuantized) {
      SCOPED_TRACE(std::string(name) + " " + std::string(torch_name(type)));
      const std::int64_t width = 4 * 256 + (block_elements(type) == 64 ? 13 : 0);
      Weight weight(type, 1, width);
      const cpu::QuantizedTensor tensor = {type, weight.bytes.data(), width};
      const auto* expected = weight.decoded.view().as<float>();
      std::vector<float> run(static_cast<std::size_t>(width) + 1);
      for (const std::int64_t begin : {0, 1, 31, 32, 63, 255, 256, 300, 1000, 1023}) {
        for (const std::int64_t count : {0, 1, 5, 32, 33, 64, 255, 512, 1100}) {
          const std::int64_t taken = std::min(count, width - begin);
          run[static_cast<std::size_t>(taken)] = 12345.0f;
          cpu::quantized_decoder(type)(tensor, begin, taken, run.data());
          ASSERT_EQ(std::memcmp(run.data(), expected + begin, static_cast<std::size_t>(taken) * sizeof(float)), 0)
              << begin << ", " << taken;
          ASSERT_EQ(run[static_cast<std::size_t>(taken)], 12345.0f) << "wrote behind the run";
        }
      }
    }
  });
}

TEST(QuantizedDecoder, PlainTypesAreRefused) { EXPECT_THROW(cpu::quantized_decoder(DType::bf16), Error); }

TEST(QuantizedLinear, HasTheBitsOfItsDecodedTwin) {
  for_each_case([](Weight& weight, std::int64_t tokens, DType activation) {
    const std::int64_t outputs = weight.shape[0], inputs = weight.shape[1];
    for (const bool with_bias : {false, true}) {
      Tensor x = random_tensor(activation, {tokens, inputs}, 2), bias = random_tensor(activation, {outputs}, 3);
      Tensor residual = random_tensor(activation, {tokens, outputs}, 4);
      Tensor y(activation, residual.shape), expected(activation, residual.shape);
      const TensorView none;
      const auto run = [&](const TensorView& w, Tensor& out) {
        run_kernel(cpu::linear, {x.view(), w, with_bias ? bias.view() : none, with_bias ? residual.view() : none},
                   {out.view()}, {});
      };
      run(weight.view(), y);
      run(weight.decoded.view(), expected);
      ASSERT_EQ(y.bytes, expected.bytes);
    }
  });
}

TEST(QuantizedLinear, OfTransposedWeightsHasTheBitsOfItsDecodedTwin) {
  for_each_case([](Weight& weight, std::int64_t tokens, DType activation) {
    const std::int64_t inputs = weight.shape[0], outputs = weight.shape[1];
    Tensor x = random_tensor(activation, {tokens, inputs}, 2);
    Tensor y(activation, {tokens, outputs}), expected(activation, y.shape);
    const Attributes attributes = {{"transposed", std::int64_t{1}}};
    run_kernel(cpu::linear, {x.view(), weight.view(), {}, {}}, {y.view()}, attributes);
    run_kernel(cpu::linear, {x.view(), weight.decoded.view(), {}, {}}, {expected.view()}, attributes);
    ASSERT_EQ(y.bytes, expected.bytes);
  });
}

TEST(QuantizedLinearBackwardInput, HasTheBitsOfItsDecodedTwin) {
  for_each_case([](Weight& weight, std::int64_t tokens, DType activation) {
    for (const bool transposed : {false, true}) {
      const std::int64_t outputs = weight.shape[transposed ? 1 : 0], inputs = weight.shape[transposed ? 0 : 1];
      Tensor dy = random_tensor(activation, {tokens, outputs}, 2),
             addend = random_tensor(activation, {tokens, inputs}, 3);
      Tensor dx(activation, addend.shape), expected(activation, addend.shape);
      const Attributes attributes = {{"transposed", std::int64_t{transposed}}};
      run_kernel(cpu::linear_backward_input, {dy.view(), weight.view(), addend.view()}, {dx.view()}, attributes);
      run_kernel(cpu::linear_backward_input, {dy.view(), weight.decoded.view(), addend.view()}, {expected.view()},
                 attributes);
      ASSERT_EQ(dx.bytes, expected.bytes);
    }
  });
}

TEST(QuantizedEmbedding, HasTheBitsOfItsDecodedTwin) {
  for_each_case([](Weight& weight, std::int64_t tokens, DType activation) {
    const std::int64_t vocabulary = weight.shape[0], hidden = weight.shape[1];
    Tensor ids(DType::i32, {tokens});
    for (std::int64_t t = 0; t < tokens; ++t) {
      ids.view().as<std::int32_t>()[t] = static_cast<std::int32_t>(t * 17 % vocabulary);
    }
    Tensor y(activation, {tokens, hidden}), decoded(DType::f32, y.shape), expected(activation, y.shape);
    run_kernel(cpu::embedding, {ids.view(), weight.view()}, {y.view()}, {});
    run_kernel(cpu::embedding, {ids.view(), weight.decoded.view()}, {decoded.view()}, {});
    convert(decoded.bytes.data(), DType::f32, expected.bytes.data(), activation, decoded.shape.elements());
    ASSERT_EQ(y.bytes, expected.bytes);
  });
}

TEST(QuantizedEmbedding, AnIdOutsideTheVocabularyIsAnError) {
  Weight weight(DType::q8_0, 3, 32);
  Tensor ids(DType::i32, {1}), y(DType::f32, {1, 32});
  ids.view().as<std::int32_t>()[0] = 3;
  EXPECT_THROW(run_kernel(cpu::embedding, {ids.view(), weight.view()}, {y.view()}, {}), Error);
}

TEST(QuantizedLinearCrossEntropy, HasTheBitsOfItsDecodedTwin) {
  for_each_case([](Weight& weight, std::int64_t tokens, DType activation) {
    for (const bool transposed : {false, true}) {
      const std::int64_t vocabulary = weight.shape[transposed ? 1 : 0], hidden = weight.shape[transposed ? 0 : 1];
      if (hidden > 1000) continue;  // those widths are the vocabulary's turn
      Tensor x = random_tensor(activation, {tokens, hidden}, 2), labels(DType::i32, {tokens});
      for (std::int64_t t = 0; t < tokens; ++t) {
        labels.view().as<std::int32_t>()[t] = t % 5 == 3 ? -100 : static_cast<std::int32_t>(t * 7 % vocabulary);
      }
      constexpr std::int64_t kChunk = 40;
      const Attributes attributes = {{"chunk", kChunk}, {"transposed", std::int64_t{transposed}}};
      const auto run = [&](const TensorView& w, Tensor& loss, Tensor& gradient_loss, Tensor& dx) {
        Tensor workspace(DType::f32, {kChunk, vocabulary});
        run_kernel(cpu::linear_cross_entropy, {x.view(), w, labels.view()}, {loss.view(), workspace.view()},
                   attributes);
        run_kernel(cpu::linear_cross_entropy_gradient, {x.view(), w, labels.view()},
                   {gradient_loss.view(), dx.view(), {}, workspace.view()}, attributes);
      };
      Tensor loss(DType::f64, {1}), loss2(DType::f64, {1}), dx(activation, x.shape);
      Tensor expected_loss(DType::f64, {1}), expected_loss2(DType::f64, {1}), expected_dx(activation, x.shape);
      run(weight.view(), loss, loss2, dx);
      run(weight.decoded.view(), expected_loss, expected_loss2, expected_dx);
      ASSERT_EQ(loss.bytes, expected_loss.bytes);
      ASSERT_EQ(loss2.bytes, expected_loss2.bytes);
      ASSERT_EQ(dx.bytes, expected_dx.bytes);
    }
  });
}

TEST(QuantizedProducts, HaveTheirBitsOnEveryInstructionSetAndForAnyNumberOfThreads) {
  for (const DType type : kQuantized) {
    Weight weight(type, 131, 768);
    for (const std::int64_t tokens : {1, 19}) {
      Tensor x = random_tensor(DType::bf16, {tokens, 768}, 2), dy = random_tensor(DType::f32, {tokens, 131}, 3);
      test::with_each_way_to_multiply([&](const char* name) {
        SCOPED_TRACE(describe(weight, tokens, DType::bf16) + ", " + name);
        Tensor y(DType::bf16, dy.shape), dx(DType::f32, x.shape), expected_y(DType::bf16, dy.shape),
            expected_dx(DType::f32, x.shape);
        run_kernel(cpu::linear, {x.view(), weight.decoded.view(), {}, {}}, {expected_y.view()}, {});
        run_kernel(cpu::linear_backward_input, {dy.view(), weight.decoded.view(), {}}, {expected_dx.view()}, {});
        for (const int threads : {1, 3}) {
          const ThreadsScope scope(threads);
          run_kernel(cpu::linear, {x.view(), weight.view(), {}, {}}, {y.view()}, {});
          run_kernel(cpu::linear_backward_input, {dy.view(), weight.view(), {}}, {dx.view()}, {});
          ASSERT_EQ(y.bytes, expected_y.bytes);
          ASSERT_EQ(dx.bytes, expected_dx.bytes);
        }
      });
    }
  }
}

TEST(QuantizedProducts, AreRefusedAsTheLeftFactor) {
  Weight weight(DType::q8_0, 4, 32);
  Tensor b = random_tensor(DType::f32, {32, 5}, 1), c(DType::f32, {4, 5});
  MatrixProduct product;
  product.rows = 4;
  product.columns = 5;
  product.depth = 32;
  product.a = cpu::row_major(weight.view());
  product.b = cpu::row_major(b.view());
  product.c = c.bytes.data();
  product.c_row_stride = 5;
  EXPECT_THROW(cpu::matmul(product, ScratchMemory().get()), Error);
}

}  // namespace
}  // namespace heddle
