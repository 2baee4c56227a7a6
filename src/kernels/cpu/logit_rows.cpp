#include "kernels/cpu/logit_rows.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/threads.h"

namespace heddle::cpu {
namespace {

std::size_t row_bytes(const TensorView& matrix) {
  return static_cast<std::size_t>(matrix.shape.back()) * dtype_bytes(matrix.dtype);
}

/// d W for these tokens, d being [count, depth], in place of what dx holds or added to it.
void write_input_gradient(const Head& head, const MatrixOperand& d, std::int64_t depth, const MatrixOperand& weight,
                          const TensorView& dx, std::int64_t begin, std::int64_t count, bool add) {
  MatrixProduct product = head.product();
  product.rows = count;
  product.columns = dx.shape.back();
  product.depth = depth;
  product.a = d;
  product.b = weight;
  product.c = dx.as<std::byte>() + row_bytes(dx) * static_cast<std::size_t>(begin);
  product.c_dtype = dx.dtype;
  product.c_row_stride = product.columns;
  product.addend = add ? product.c : nullptr;
  product.addend_row_stride = product.columns;
  matmul(product, head.scratch);
}

/// dW (+)= d^T x over these tokens; transposed: x^T d.
void write_weight_gradient(const Head& head, const MatrixOperand& d, const TensorView& x, bool is_transposed,
                           const TensorView& dweight, std::int64_t begin, std::int64_t count, bool add) {
  MatrixProduct product = head.product();
  product.rows = dweight.shape[0];
  product.columns = dweight.shape[1];
  product.depth = count;
  product.a = transposed(is_transposed ? Head::rows_of(x, begin) : d);
  product.b = is_transposed ? d : Head::rows_of(x, begin);
  product.c = dweight.data;
  product.c_row_stride = product.columns;
  product.starts_at_c = add;
  matmul(product, head.scratch);
}

/// Moves the gradients of the logits that rows of the adapter's own made out of d, where zeros stay, to row_logits.
void take_row_gradients(const Head& head, std::int64_t count) {
  const std::int64_t replaced = head.replaced.count();
  parallel_for(count, [&](std::int64_t t, int) {
    float* logits = head.logits + t * head.vocabulary;
    for (std::int64_t i = 0; i < replaced; ++i)
      head.row_logits[t * replaced + head.replaced.place(i)] = std::exchange(logits[head.replaced.id(i)], 0.0f);
  });
}

/// factors[v] = m / norms, at most kSlice of them from `first` on.
constexpr std::int64_t kSlice = 256;
void dora_factors(const Head& head, std::int64_t first, std::int64_t count, float* factors) {
  convert(head.magnitude.as<std::byte>() + static_cast<std::size_t>(first) * dtype_bytes(head.magnitude.dtype),
          head.magnitude.dtype, factors, DType::f32, count);
  for (std::int64_t i = 0; i < count; ++i) factors[i] /= std::max(head.norms.as<const float>()[first + i], 1e-30f);
}

/// Calls use(first column, columns, their factors), in parallel.
template <typename Use>
void for_each_dora_slice(const Head& head, Use use) {
  parallel_for((head.vocabulary + kSlice - 1) / kSlice, [&](std::int64_t slice, int) {
    const std::int64_t first = slice * kSlice, count = std::min(kSlice, head.vocabulary - first);
    float factors[kSlice];
    dora_factors(head, first, count, factors);
    use(first, count, factors);
  });
}

void scale_logits(const Head& head, std::int64_t tokens) {
  for_each_dora_slice(head, [&](std::int64_t first, std::int64_t count, const float* factors) {
    for (std::int64_t t = 0; t < tokens; ++t) {
      float* logits = head.logits + t * head.vocabulary + first;
      float* unscaled = head.unscaled + t * head.vocabulary + first;
      for (std::int64_t i = 0; i < count; ++i) {
        unscaled[i] = logits[i];
        logits[i] *= factors[i];
      }
    }
  });
}

/// dm (+)= sum over t of d z / norms, in the order of t, and d = d m / norms.
void differentiate_scale(const Head& head, std::int64_t tokens, const TensorView& dmagnitude, bool add) {
  for_each_dora_slice(head, [&](std::int64_t first, std::int64_t count, const float* factors) {
    float sums[kSlice] = {};
    for (std::int64_t t = 0; t < tokens; ++t) {
      float* d = head.logits + t * head.vocabulary + first;
      const float* unscaled = head.unscaled + t * head.vocabulary + first;
      for (std::int64_t i = 0; i < count; ++i) {
        sums[i] += d[i] * unscaled[i];
        d[i] *= factors[i];
      }
    }
    if (!dmagnitude.present()) return;
    float* to = dmagnitude.as<float>() + first;
    for (std::int64_t i = 0; i < count; ++i) {
      const float sum = sums[i] / std::max(head.norms.as<const float>()[first + i], 1e-30f);
      to[i] = (add ? to[i] : 0.0f) + sum;
    }
  });
}

void clear_rows(const TensorView& dx, std::int64_t begin, std::int64_t count) {
  if (!dx.present()) return;
  std::memset(dx.as<std::byte>() + row_bytes(dx) * static_cast<std::size_t>(begin), 0,
              row_bytes(dx) * static_cast<std::size_t>(count));
}

}  // namespace

Head::Head(const KernelCall& call, const TensorView& workspace)
    : x(call.in[0]),
      labels(call.in[2].as<std::int32_t>()),
      logits(workspace.as<float>()),
      scratch(call.scratch),
      replaced(call.attributes) {
  const TensorView& w = call.in[1];
  is_transposed = call.attributes.integer("transposed") != 0;
  tokens = x.shape.rows();
  hidden = x.shape.back();
  vocabulary = w.shape[is_transposed ? 1 : 0];
  chunk = call.attributes.integer("chunk");
  weight = row_major(w);
  if (is_transposed) weight = transposed(weight);
  const std::int64_t at_once = std::min(chunk, tokens);
  HEDDLE_CHECK(chunk > 0 && at_once * (vocabulary + replaced.count()) <= workspace.elements());
  HEDDLE_CHECK(static_cast<std::size_t>(at_once) * sizeof(double) <= scratch.shared_bytes);
  row_logits = logits + at_once * vocabulary;
  unscaled = wide_dx = row_logits + at_once * replaced.count();
  row.values = nullptr;
  row.vocabulary = vocabulary;
  row.label = kIgnoredLabel;
  row.scale = static_cast<float>(call.attributes.real("logit_scale", 1.0));
  row.cap = static_cast<float>(call.attributes.real("softcap", 0.0));
  row.with_gradient = false;
  row.gradient_scale = call.scalars.gradient_scale;
  row.smoothing = call.attributes.real("label_smoothing");
  row.z_loss = call.attributes.real("z_loss");
}

void Head::set_adapter(const KernelCall& call, std::size_t first) {
  if (call.in.size() > first && call.in[first].present()) {
    branch_x = call.in[first];
    branch_weight = row_major(call.in[first + 1]);
  }
  if (call.in.size() > first + 2 && call.in[first + 2].present()) rows = row_major(call.in[first + 2]);
  HEDDLE_CHECK((replaced.count() > 0) == (rows.data != nullptr));
  if (call.in.size() > first + 4 && call.in[first + 3].present()) {
    magnitude = call.in[first + 3];
    norms = call.in[first + 4];
  }
}

bool any_supervised(const Head& head, std::int64_t begin, std::int64_t count) {
  bool any = false;
  for (std::int64_t t = begin; t < begin + count; ++t) {
    if (head.labels[t] == kIgnoredLabel) continue;
    if (head.labels[t] < 0 || head.labels[t] >= head.vocabulary) {
      fail("label {} of token {} is outside the vocabulary of {}", head.labels[t], t, head.vocabulary);
    }
    any = true;
  }
  return any;
}

void make_logits(const Head& head, std::int64_t begin, std::int64_t count) {
  MatrixProduct product = head.product();
  product.rows = count;
  product.columns = head.vocabulary;
  product.depth = head.hidden;
  product.a = head.x_rows(begin);
  product.b = transposed(head.weight);
  product.c = head.logits;
  product.c_row_stride = head.vocabulary;
  matmul(product, head.scratch);
  if (head.branch_x.present()) {
    MatrixProduct branch = product;
    branch.depth = head.branch_x.shape.back();
    branch.a = Head::rows_of(head.branch_x, begin);
    branch.b = transposed(head.branch_weight);
    branch.addend = head.logits;
    branch.addend_row_stride = head.vocabulary;
    matmul(branch, head.scratch);
  }
  if (head.magnitude.present()) scale_logits(head, count);
  const std::int64_t replaced = head.replaced.count();
  if (replaced == 0) return;
  product.columns = replaced;
  product.b = transposed(head.rows);
  product.c = head.row_logits;
  product.c_row_stride = replaced;
  matmul(product, head.scratch);
  parallel_for(count, [&](std::int64_t t, int) {
    float* logits = head.logits + t * head.vocabulary;
    for (std::int64_t i = 0; i < replaced; ++i)
      logits[head.replaced.id(i)] = head.row_logits[t * replaced + head.replaced.place(i)];
  });
}

HeadGradients::HeadGradients(const KernelCall& call, const TensorView& dx, const TensorView& dweight, std::size_t first)
    : dx_(dx), dweight_(dweight), is_added_(adds(call)) {
  const auto output = [&](std::size_t i) { return i < call.out.size() ? call.out[i] : TensorView{}; };
  branch_dx_ = output(first);
  branch_dweight_ = output(first + 1);
  drows_ = output(first + 2);
  dmagnitude_ = output(first + 3);
}

void HeadGradients::write(const Head& head, std::int64_t begin, std::int64_t count) {
  if (head.magnitude.present()) differentiate_scale(head, count, dmagnitude_, is_added_);
  const MatrixOperand d = row_major(head.logits, DType::f32, head.vocabulary);
  if (branch_dx_.present())
    write_input_gradient(head, d, head.vocabulary, head.branch_weight, branch_dx_, begin, count, false);
  if (branch_dweight_.present())
    write_weight_gradient(head, d, head.branch_x, false, branch_dweight_, begin, count, is_added_);
  const std::int64_t replaced = head.replaced.count();
  if (replaced > 0) take_row_gradients(head, count);
  if (dx_.present()) write_dx(head, d, begin, count);
  if (dweight_.present()) write_weight_gradient(head, d, head.x, head.is_transposed, dweight_, begin, count, is_added_);
  if (replaced > 0) {
    const MatrixOperand d_rows = row_major(head.row_logits, DType::f32, replaced);
    if (drows_.present()) write_weight_gradient(head, d_rows, head.x, false, drows_, begin, count, is_added_);
  }
  is_added_ = true;
}

void HeadGradients::write_dx(const Head& head, const MatrixOperand& d, std::int64_t begin, std::int64_t count) const {
  const std::int64_t replaced = head.replaced.count();
  if (replaced == 0) return write_input_gradient(head, d, head.vocabulary, head.weight, dx_, begin, count, false);
  // Two products make it: their sum is rounded once.
  const MatrixOperand d_rows = row_major(head.row_logits, DType::f32, replaced);
  const bool is_wide = dx_.dtype == DType::f32;
  const TensorView sum = is_wide ? dx_ : TensorView{head.wide_dx, DType::f32, {count, head.hidden}};
  const std::int64_t first = is_wide ? begin : 0;
  write_input_gradient(head, d, head.vocabulary, head.weight, sum, first, count, false);
  write_input_gradient(head, d_rows, replaced, head.rows, sum, first, count, true);
  if (is_wide) return;
  parallel_for(count, [&](std::int64_t t, int) {
    convert(head.wide_dx + t * head.hidden, DType::f32,
            dx_.as<std::byte>() + row_bytes(dx_) * static_cast<std::size_t>(begin + t), dx_.dtype, head.hidden);
  });
}

void HeadGradients::skip(std::int64_t begin, std::int64_t count) const {
  clear_rows(dx_, begin, count);
  clear_rows(branch_dx_, begin, count);
}

void HeadGradients::finish() const {
  if (is_added_) return;
  for (const TensorView& gradient : {dweight_, branch_dweight_, drows_, dmagnitude_}) {
    if (gradient.present())
      std::memset(gradient.data, 0, static_cast<std::size_t>(gradient.elements()) * sizeof(float));
  }
}

}  // namespace heddle::cpu
