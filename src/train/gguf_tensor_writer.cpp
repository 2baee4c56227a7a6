#include "train/gguf_tensor_writer.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/threads.h"
#include "quantize/decode.h"
#include "train/decoded_tensor.h"

namespace heddle {
namespace {

constexpr std::int64_t kPiece = std::int64_t{1} << 20;  // elements between the files: whole blocks of every type

std::int64_t columns_of(const GgufTensorPlan& tensor) {
  return tensor.shape.size() < 2 ? 1 : tensor.shape.back();  // a bias has a row for each element
}

/// Columns of a matrix with `rows` rows as rows.
template <typename T>
std::vector<T> transposed(const std::vector<T>& all, std::int64_t rows) {
  const std::int64_t columns = static_cast<std::int64_t>(all.size()) / rows;
  std::vector<T> turned(all.size());
  parallel_for(columns, [&](std::int64_t column, int) {
    for (std::int64_t row = 0; row < rows; ++row)
      turned[static_cast<std::size_t>(column * rows + row)] = all[static_cast<std::size_t>(row * columns + column)];
  });
  return turned;
}

}  // namespace

std::int64_t GgufTensorPlan::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) product *= extent;
  return product;
}

GgufTensorWriter::GgufTensorWriter(MergedModel& model, GgufWriter& writer)
    : model_(model), head_dim_(model.source().config.head_dim), writer_(writer) {}

void GgufTensorWriter::write(const GgufTensorPlan& tensor) {
  const bool keeps_values = tensor.gguf.change == GgufChange::none || tensor.gguf.change == GgufChange::pair_rows;
  try {
    if (model_.changes(tensor.parameter)) return write_merged(tensor);
    if (tensor.source->dtype == tensor.dtype && keeps_values) return copy(tensor);
    DecodedTensor decoded(model_.base(), *tensor.source);
    pass<float>(
        tensor, [&](std::int64_t begin, std::span<float> values) { decoded.read(begin, values); },
        [&](std::span<const float> values) { append_encoded(tensor.dtype, values); });
  } catch (const Error& error) {
    fail("{}: {}", tensor.gguf.name, error.what());
  }
}

void GgufTensorWriter::write_merged(const GgufTensorPlan& tensor) {
  MergedTensor merged = model_.open(tensor.parameter, *tensor.source);
  std::vector<float> rounded;
  pass<double>(
      tensor, [&](std::int64_t begin, std::span<double> values) { merged.read(begin, values); },
      [&](std::span<const double> exact) {
        rounded.assign(exact.begin(), exact.end());
        append_encoded(tensor.dtype, rounded);
        const auto count = static_cast<std::int64_t>(exact.size());
        decode(tensor.dtype, encoded_.data(), count, 0, count, rounded.data());
        merged.account(exact, rounded);
      });
}

void GgufTensorWriter::copy(const GgufTensorPlan& tensor) {
  const bool pairs = tensor.gguf.change == GgufChange::pair_rows;
  const std::int64_t elements = tensor.elements(), columns = columns_of(tensor);
  const std::int64_t step = pairs ? head_dim_ * columns : kPiece;  // one head's rows, or any
  for (std::int64_t begin = 0; begin < elements; begin += step) {
    encoded_.resize(static_cast<std::size_t>(storage_bytes(tensor.dtype, std::min(step, elements - begin))));
    model_.base().read(*tensor.source, static_cast<std::uint64_t>(storage_bytes(tensor.dtype, begin)), encoded_);
    if (pairs) pair_rows(encoded_, storage_bytes(tensor.dtype, columns));
    writer_.append(encoded_);
  }
}

template <typename T, typename Read, typename Append>
void GgufTensorWriter::pass(const GgufTensorPlan& tensor, Read read, Append append) const {
  const GgufChange change = tensor.gguf.change;
  const std::int64_t elements = tensor.elements(), columns = columns_of(tensor);
  std::vector<T> values;
  if (change == GgufChange::transpose) {
    values.resize(static_cast<std::size_t>(elements));
    read(0, values);
    values = transposed(values, tensor.source->shape.at(0));
    for (std::int64_t begin = 0; begin < elements; begin += kPiece)
      append(std::span<const T>(values).subspan(static_cast<std::size_t>(begin),
                                                static_cast<std::size_t>(std::min(kPiece, elements - begin))));
    return;
  }
  const std::int64_t step = change == GgufChange::pair_rows ? head_dim_ * columns : kPiece;
  for (std::int64_t begin = 0; begin < elements; begin += step) {
    values.resize(static_cast<std::size_t>(std::min(step, elements - begin)));
    read(begin, values);
    if (change == GgufChange::pair_rows) pair_rows(values, columns);
    if (change == GgufChange::add_one) {
      for (T& value : values) value += T{1};
    }
    append(std::span<const T>(values));
  }
}

/// Of one head, of `width` values (or bytes) each.
template <typename T>
void GgufTensorWriter::pair_rows(std::vector<T>& rows, std::int64_t width) const {
  const std::vector<T> before = rows;
  for (std::int64_t row = 0; row < head_dim_; ++row)
    std::copy_n(before.begin() + row * width, width, rows.begin() + paired_row(row, head_dim_) * width);
}

void GgufTensorWriter::append_encoded(DType type, std::span<const float> values) {
  constexpr float kGreatestHalf = 65504.0f;
  if (type == DType::f16) {
    for (const float value : values) {
      if (std::isfinite(value) && std::fabs(value) > kGreatestHalf)
        fail("holds {}, beyond the range of F16; --type bf16 or f32 keeps it", value);
    }
  }
  const auto count = static_cast<std::int64_t>(values.size());
  encoded_.resize(static_cast<std::size_t>(storage_bytes(type, count)));
  encode(type, values.data(), count, encoded_.data());
  writer_.append(encoded_);
}

}  // namespace heddle
