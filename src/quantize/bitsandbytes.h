#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quantize/four_bit.h"

/// How bitsandbytes stores a tensor NAME in four bits in a safetensors file, as `save_pretrained` leaves such a model:
///   NAME                                       u8 [(elements + 1) / 2, 1], two codes a byte; or the same bytes as
///                                              another type (bnb_4bit_quant_storage)
///   NAME.absmax                                f32 [blocks]; u8 [blocks] with double quantization
///   NAME.quant_map                             f32 [16], what the codes stand for
///   NAME.nested_absmax, NAME.nested_quant_map  f32 [nested blocks], f32 [256]: with double quantization
///   NAME.quant_state.bitsandbytes__nf4         u8: a JSON text; of FP4 the name ends with fp4
namespace heddle {

/// What the JSON text says.
struct BitsandbytesState {
  std::string quant_type = "nf4";
  std::int64_t block = 64;
  std::string torch_dtype;  ///< of the tensor before: "float32", "bfloat16", "float16"
  std::vector<std::int64_t> shape;
  bool nested = false;  ///< double quantization; what follows has no meaning without
  std::int64_t nested_block = 256;
  std::string nested_torch_dtype = "float32";
  double nested_offset = 0.0;

  DType dtype() const { return four_bit_type(quant_type, nested); }
  std::int64_t elements() const;
};

/// What the names of states begin with, behind NAME, and of one state.
inline constexpr std::string_view kQuantStateMark = ".quant_state.bitsandbytes__";
std::string quant_state_suffix(const BitsandbytesState& state);

/// As Python's json.dumps writes it.
std::string quant_state_text(const BitsandbytesState& state);

/// One of the tensors of the list above.
struct BitsandbytesPart {
  std::string suffix;  ///< what follows NAME: "", ".absmax", ...
  DType dtype = DType::u8;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;  ///< into the tensor, the state's text or a constant table
};

/// The parts of a tensor that lies in memory as quantize/four_bit.h says. `text` is quant_state_text(state).
std::vector<BitsandbytesPart> bitsandbytes_parts(const BitsandbytesState& state, std::span<const std::byte> tensor,
                                                 std::string_view text);

/// One part of the list above that has to be there, where it goes in memory and how long it is. `target` is negative
/// for a table, which has to equal ours.
struct BitsandbytesSource {
  std::string_view suffix;
  std::int64_t target = 0, bytes = 0;
};

/// What to read, and to where in storage_bytes(state.dtype(), state.elements()) that are zero before. The mean of the
/// scales lies in no tensor: it is the state's nested_offset. Throws Error naming `tensor` where the state is one that
/// quantize/four_bit.h does not have, such as other block sizes.
std::vector<BitsandbytesSource> bitsandbytes_sources(const BitsandbytesState& state, std::string_view tensor);
/// Throws Error naming `tensor` where a table that was read differs from ours.
void check_bitsandbytes_table(const BitsandbytesState& state, std::string_view suffix, std::span<const std::byte> bytes,
                              std::string_view tensor);

}  // namespace heddle
