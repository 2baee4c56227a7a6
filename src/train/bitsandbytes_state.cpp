#include "train/bitsandbytes_state.h"

#include <array>
#include <limits>

#include "formats/json_reader.h"

namespace heddle {
namespace {

constexpr std::array<std::string_view, 7> kKeys = {"quant_type",       "blocksize",    "dtype",        "shape",
                                                   "nested_blocksize", "nested_dtype", "nested_offset"};
constexpr std::int64_t kMaxExtent = std::int64_t{1} << 40;

std::vector<std::int64_t> read_shape(const JsonReader& reader) {
  const Json* shape = reader.find("shape");
  if (shape == nullptr || !shape->is_array()) reader.refuse("shape", "a list of extents");
  std::vector<std::int64_t> extents;
  std::int64_t elements = 1;
  for (const Json& extent : *shape) {
    if (!extent.is_number_integer() || extent < 1 || extent > kMaxExtent / elements) {
      reader.refuse("shape", "positive extents of at most 2^40 elements");
    }
    extents.push_back(extent.get<std::int64_t>());
    elements *= extents.back();
  }
  return extents;
}

}  // namespace

BitsandbytesState parse_quant_state(std::string_view text, const std::string& name) {
  const Json json = parse_json(text, name);
  const JsonReader reader(json, name);
  reader.allow_only(kKeys);
  constexpr std::int64_t kMaxBlock = std::numeric_limits<std::int32_t>::max();
  BitsandbytesState state;
  state.quant_type = reader.text("quant_type");
  state.block = reader.integer("blocksize", 1, kMaxBlock);
  state.torch_dtype = reader.text("dtype");
  state.shape = read_shape(reader);
  state.nested = reader.has("nested_offset");
  if (state.nested) {
    state.nested_block = reader.integer("nested_blocksize", 1, kMaxBlock);
    state.nested_torch_dtype = reader.text("nested_dtype");
    state.nested_offset = reader.number("nested_offset");
  }
  return state;
}

}  // namespace heddle
