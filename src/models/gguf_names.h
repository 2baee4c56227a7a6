#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

// GGUF's names of a model's tensors and Hugging Face's, one table for both directions, with what llama.cpp's converter
// does to values on the way. https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
namespace heddle {

/// How values of a GGUF tensor come from those of Hugging Face's. Shapes (outermost first) change by `transpose` alone.
enum class GgufChange : std::uint8_t {
  none,
  pair_rows,  ///< rows of each head of q or k: row j*D/2 + i becomes 2i + j, as ggml's rope rotates neighbours
  add_one,    ///< norms of 1 + w: stored with the 1
  transpose   ///< [in, out] becomes [out, in]
};

struct GgufName {
  std::string name;
  GgufChange change = GgufChange::none;
};

/// general.architecture of a model_type that has one: "gemma3" of "gemma3_text".
std::optional<std::string_view> gguf_architecture(std::string_view model_type);
/// The model_type that reads an architecture; of several (llama, mistral) the first.
std::optional<std::string_view> model_type_of_gguf(std::string_view architecture);

/// The GGUF tensor of a Hugging Face tensor ("model.layers.3.self_attn.q_proj.weight"). None for one that the family
/// does not have.
std::optional<GgufName> to_gguf_name(std::string_view model_type, std::string_view name);
/// The Hugging Face tensor of a GGUF tensor ("blk.3.attn_q.weight"), with the change that is to be undone.
std::optional<GgufName> from_gguf_name(std::string_view model_type, std::string_view name);

/// pair_rows: where row `row` of Hugging Face's tensor lies in the GGUF tensor, and back. `head_dim` is even.
std::int64_t paired_row(std::int64_t row, std::int64_t head_dim);
std::int64_t unpaired_row(std::int64_t row, std::int64_t head_dim);

}  // namespace heddle
