// y[t,:] = weight[ids[t],:] (transposed: weight[:,ids[t]]), decoded where the weight is quantized. Overwrites y. The
// backward adds dy[t,:] to dweight[ids[t],:], but for ids[t] = padding_id; in overwrite mode all of dweight is zeroed
// first. With rows of an adapter's own, ids that have one take it in place of the weight's, and the backward adds to
// these rows alone. replace_columns puts their logits where those of the weight stood. Rows are added in the order of
// the stream, for slices of columns in parallel: no atomics, and the same bits for any number of threads.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/embedding.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/blocks.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/quantized.h"
#include "kernels/cpu/replaced_rows.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

/// dweight[k,ids[t]] += dy[t,k]: a row of dweight, which no other thread touches, after another.
void add_columns(const std::int32_t* ids, std::int64_t padding_id, const TensorView& dy, const TensorView& dweight) {
  const std::int64_t tokens = dy.shape.rows(), rank = dy.shape.back(), vocabulary = dweight.shape[1];
  with_element_type(dy.dtype, [&](auto* type) {
    using A = std::remove_pointer_t<decltype(type)>;
    for_each_block(rank, 1, [&](std::int64_t k, std::int64_t) {
      auto* row = dweight.as<float>() + k * vocabulary;
      for (std::int64_t t = 0; t < tokens; ++t) {
        if (ids[t] != padding_id) row[ids[t]] += static_cast<float>(dy.as<const A>()[t * rank + k]);
      }
    });
  });
}

void embedding_backward(const KernelCall& call) {
  constexpr std::int64_t kColumns = 128;
  const TensorView& dy = call.in[1];
  const TensorView& dweight = call.out[0];
  const auto* ids = call.in[0].as<const std::int32_t>();
  const std::int64_t tokens = dy.shape.rows(), hidden = dy.shape.back();
  const std::int64_t padding_id = call.attributes.integer("padding_id", -1);
  if (!adds(call)) {
    for_each_block(dweight.elements(), kElementsPerBlock, [&](std::int64_t begin, std::int64_t count) {
      std::memset(dweight.as<float>() + begin, 0, static_cast<std::size_t>(count) * sizeof(float));
    });
  }
  if (call.attributes.integer("transposed") != 0) return add_columns(ids, padding_id, dy, dweight);
  const ReplacedRows replaced(call.attributes);
  with_element_type(dy.dtype, [&](auto* type) HWY_ATTR {
    using A = std::remove_pointer_t<decltype(type)>;
    for_each_block(hidden, kColumns, [&](std::int64_t begin, std::int64_t count) HWY_ATTR {
      for (std::int64_t t = 0; t < tokens; ++t) {
        if (ids[t] == padding_id) continue;
        const std::int64_t row = replaced.count() > 0 ? replaced.place_of_id(ids[t]) : ids[t];
        if (row >= 0) add_to(count, dy.as<const A>() + t * hidden + begin, dweight.as<float>() + row * hidden + begin);
      }
    });
  });
}

/// y[t,k] = weight[k,ids[t]].
void take_columns(const std::int32_t* ids, const TensorView& weight, const TensorView& y) {
  const std::int64_t tokens = y.shape.rows(), rank = y.shape.back(), vocabulary = weight.shape[1];
  with_element_type(y.dtype, [&](auto* type) {
    using A = std::remove_pointer_t<decltype(type)>;
    for_each_block(tokens, rows_per_block(rank), [&](std::int64_t begin, std::int64_t count) {
      for (std::int64_t i = begin * rank; i < (begin + count) * rank; ++i)
        y.as<A>()[i] = weight.as<const A>()[i % rank * vocabulary + ids[i / rank]];
    });
  });
}

/// y[t,:] = weight[ids[t],:], decoded a piece of a row at a time.
void decode_rows(const std::int32_t* ids, const TensorView& weight, const TensorView& y) {
  constexpr std::int64_t kPiece = 1024;
  const QuantizedTensor tensor = {weight.dtype, weight.as<const std::byte>(), weight.elements()};
  const DecodeRun decode = quantized_decoder(weight.dtype);
  const std::int64_t hidden = y.shape.back();
  with_element_type(y.dtype, [&](auto* type) {
    using A = std::remove_pointer_t<decltype(type)>;
    for_each_block(y.shape.rows(), rows_per_block(hidden), [&](std::int64_t begin, std::int64_t count) HWY_ATTR {
      HWY_ALIGN float values[kPiece];
      for (std::int64_t t = begin; t < begin + count; ++t) {
        for (std::int64_t i = 0; i < hidden; i += kPiece) {
          const std::int64_t there = std::min(kPiece, hidden - i);
          A* to = y.as<A>() + t * hidden + i;
          decode(tensor, ids[t] * hidden + i, there, values);
          for_each_vector(there, [&](std::int64_t at, auto extent) HWY_ATTR {
            const FloatTag d;
            store(load(d, values + at, extent), d, to + at, extent);
          });
        }
      }
    });
  });
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu {
HWY_EXPORT(embedding_backward);
HWY_EXPORT(decode_rows);
HWY_EXPORT(take_columns);

namespace {

/// y[t,:] = table[row_of(ids[t]),:], but for rows below 0.
template <typename RowOf>
void take_rows(const std::int32_t* ids, const TensorView& table, const TensorView& y, RowOf row_of) {
  const auto bytes = static_cast<std::int64_t>(dtype_bytes(y.dtype)) * y.shape.back();
  for_each_block(y.shape.rows(), rows_per_block(y.shape.back()), [&](std::int64_t begin, std::int64_t count) {
    for (std::int64_t t = begin; t < begin + count; ++t) {
      const std::int64_t row = row_of(ids[t]);
      if (row < 0) continue;
      std::memcpy(y.as<std::byte>() + t * bytes, table.as<const std::byte>() + row * bytes,
                  static_cast<std::size_t>(bytes));
    }
  });
}

}  // namespace

void embedding(const KernelCall& call) {
  const TensorView& weight = call.in[1];
  const TensorView& y = call.out[0];
  const auto* ids = call.in[0].as<const std::int32_t>();
  const std::int64_t tokens = y.shape.rows();
  const bool is_transposed = call.attributes.integer("transposed") != 0;
  const std::int64_t vocabulary = weight.shape[is_transposed ? 1 : 0];
  for (std::int64_t t = 0; t < tokens; ++t) {
    if (ids[t] < 0 || ids[t] >= vocabulary) {
      fail("embedding: token {} of the stream has id {}; the vocabulary has {} entries", t, ids[t], vocabulary);
    }
  }
  if (is_transposed) {
    HWY_DYNAMIC_DISPATCH(take_columns)(ids, weight, y);
  } else if (is_quantized(weight.dtype)) {
    HWY_DYNAMIC_DISPATCH(decode_rows)(ids, weight, y);
  } else {
    take_rows(ids, weight, y, [](std::int64_t id) { return id; });
  }
  const ReplacedRows replaced(call.attributes);
  if (replaced.count() > 0) take_rows(ids, call.in[2], y, [&](std::int64_t id) { return replaced.place_of_id(id); });
}

void replace_columns(const KernelCall& call) {
  const TensorView &values = call.in[0], &logits = call.out[0];
  const ReplacedRows replaced(call.attributes);
  for (std::int64_t i = 0; i < replaced.count(); ++i) {
    const auto* from =
        values.as<const std::byte>() + replaced.place(i) * static_cast<std::int64_t>(dtype_bytes(values.dtype));
    convert(from, values.dtype, logits.as<float>() + replaced.id(i), DType::f32, 1);
  }
}

void embedding_backward(const KernelCall& call) { HWY_DYNAMIC_DISPATCH(embedding_backward)(call); }

}  // namespace heddle::cpu
#endif
