#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "models/gguf_names.h"
#include "train/merged_model.h"

namespace heddle {

/// A tensor on its way from the model's files into the GGUF file.
struct GgufTensorPlan {
  std::string parameter;
  const StoredTensor* source;
  GgufName gguf;
  DType dtype;
  std::vector<std::int64_t> shape;  ///< in the GGUF file

  std::int64_t elements() const;
};

/// Writes a model's tensors one after another, in the types and the order of rows that the file has, with the model's
/// adapter merged in. Holds a piece, or where a matrix is to be transposed (gpt2) that matrix.
class GgufTensorWriter {
 public:
  /// Both must outlive it.
  GgufTensorWriter(MergedModel& model, GgufWriter& writer);
  void write(const GgufTensorPlan& tensor);

 private:
  void write_merged(const GgufTensorPlan& tensor);
  void copy(const GgufTensorPlan& tensor);
  /// `read(begin, values)` gives elements as the model's files have them; `append(values)` takes them as the GGUF file
  /// has them.
  template <typename T, typename Read, typename Append>
  void pass(const GgufTensorPlan& tensor, Read read, Append append) const;
  template <typename T>
  void pair_rows(std::vector<T>& rows, std::int64_t width) const;
  /// Encodes and appends.
  void append_encoded(DType type, std::span<const float> values);

  MergedModel& model_;
  std::int64_t head_dim_;
  GgufWriter& writer_;
  std::vector<std::byte> encoded_;
};

}  // namespace heddle
