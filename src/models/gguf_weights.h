#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "models/gguf_names.h"
#include "models/model_config.h"

namespace heddle {

/// The weights of a GGUF file as a Hugging Face folder would have them: its names, its shapes, its order of rows, in
/// the file's own types, quantized blocks included. What llama.cpp's converter did is undone while reading: rows of q
/// and k are put back (whole blocks move), 1 is taken off Gemma's norms. GPT-2's linear layers lie transposed in GGUF.
/// Plain types are transposed back; blocks, which lie along the rows, cannot be: such tensors are shown as F32 and
/// decoded.
class GgufWeights final : public WeightFiles {
 public:
  /// Values [begin, begin + count) of a tensor of `elements` of a quantized type, whole blocks (quantize/decode.h).
  using Decode = void (*)(DType type, const std::byte* tensor, std::int64_t elements, std::int64_t begin,
                          std::int64_t count, float* out);

  /// `config` is that of gguf_model_config(). Throws Error naming a tensor that the architecture does not have, or
  /// whose type cannot be decoded.
  GgufWeights(const std::filesystem::path& path, const ModelConfig& config, Decode decode);

  std::vector<const StoredTensor*> tensors() const override;
  const StoredTensor* find(const std::string& name) const override;
  void read(const StoredTensor& tensor, std::uint64_t offset, std::span<std::byte> target) const override;
  const std::map<std::string, std::string>& weight_map() const override { return weight_map_; }

 private:
  struct Entry {
    StoredTensor shown;  ///< as Hugging Face has it
    const StoredTensor* stored;
    GgufChange change;
  };
  void add(const StoredTensor& tensor, const ModelConfig& config);
  void check_rows(const Entry& entry) const;
  void read_unpaired(const Entry& entry, std::uint64_t offset, std::span<std::byte> target) const;
  void read_norm(const Entry& entry, std::uint64_t offset, std::span<std::byte> target) const;
  void read_transposed(const Entry& entry, std::uint64_t offset, std::span<std::byte> target) const;

  GgufFile file_;
  Decode decode_;
  std::int64_t head_dim_;
  std::vector<Entry> entries_;                // in the order of their bytes
  std::map<std::string, std::size_t> index_;  // Hugging Face's name -> index in entries_
  std::map<std::string, std::string> weight_map_;
};

/// How many matrices GgufWeights will show as F32 though the file has them quantized.
std::size_t decoded_matrices(const GgufFile& file, const std::string& model_type);

}  // namespace heddle
