#include "quantize/bitsandbytes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "quantize/four_bit.h"

namespace heddle {
namespace {

constexpr std::string_view kCodes;
constexpr std::string_view kScales = ".absmax", kValues = ".quant_map";
constexpr std::string_view kNestedScales = ".nested_absmax", kNestedValues = ".nested_quant_map";

template <std::size_t kCount>
std::span<const std::byte> bytes_of(const std::array<float, kCount>& values) {
  return std::as_bytes(std::span(values));
}

/// As Python prints a float: the shortest digits that read back, and always a point or an exponent.
std::string python_float(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

std::int64_t code_bytes(std::int64_t elements) { return (elements + 1) / 2; }

}  // namespace

std::int64_t BitsandbytesState::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

std::string quant_state_suffix(const BitsandbytesState& state) {
  return std::string(kQuantStateMark) + state.quant_type;
}

std::string quant_state_text(const BitsandbytesState& state) {
  std::string text = fmt::format(R"({{"quant_type": "{}", "blocksize": {}, "dtype": "{}", "shape": [{}])",
                                 state.quant_type, state.block, state.torch_dtype, fmt::join(state.shape, ", "));
  if (state.nested) {
    text += fmt::format(R"(, "nested_blocksize": {}, "nested_dtype": "{}", "nested_offset": {})", state.nested_block,
                        state.nested_torch_dtype, python_float(state.nested_offset));
  }
  return text + "}";
}

std::vector<BitsandbytesPart> bitsandbytes_parts(const BitsandbytesState& state, std::span<const std::byte> tensor,
                                                 std::string_view text) {
  const std::int64_t elements = state.elements();
  const FourBitLayout layout(state.dtype(), elements);
  const auto part = [&](std::string_view suffix, DType dtype, std::vector<std::int64_t> shape, std::int64_t begin,
                        std::int64_t count) {
    const auto bytes =
        tensor.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count) * dtype_bytes(dtype));
    return BitsandbytesPart{std::string(suffix), dtype, std::move(shape), bytes};
  };
  const auto table = [](std::string_view suffix, std::span<const std::byte> bytes) {
    const auto count = static_cast<std::int64_t>(bytes.size() / sizeof(float));
    return BitsandbytesPart{std::string(suffix), DType::f32, {count}, bytes};
  };
  std::vector<BitsandbytesPart> parts;
  const std::int64_t codes = code_bytes(elements);
  parts.push_back(part(kCodes, DType::u8, {codes, 1}, 0, codes));
  parts.push_back(part(kScales, state.nested ? DType::u8 : DType::f32, {layout.blocks}, layout.scales, layout.blocks));
  parts.push_back(table(kValues, bytes_of(four_bit_values(state.dtype()))));
  if (state.nested) {
    parts.push_back(
        part(kNestedScales, DType::f32, {layout.nested_blocks}, layout.nested_scales, layout.nested_blocks));
    parts.push_back(table(kNestedValues, bytes_of(nested_scale_values())));
  }
  parts.push_back({quant_state_suffix(state),
                   DType::u8,
                   {static_cast<std::int64_t>(text.size())},
                   std::as_bytes(std::span(text.data(), text.size()))});
  return parts;
}

std::vector<BitsandbytesSource> bitsandbytes_sources(const BitsandbytesState& state, std::string_view tensor) {
  if (state.quant_type != "nf4" && state.quant_type != "fp4") {
    fail("{}: quant_type is {}; expected nf4 or fp4", tensor, state.quant_type);
  }
  if (state.block != kFourBitBlock) fail("{}: blocksize is {}; expected {}", tensor, state.block, kFourBitBlock);
  if (state.nested && (state.nested_block != kNestedBlock || state.nested_torch_dtype != "float32")) {
    fail("{}: scales are {} in blocks of {}; expected float32 in blocks of {}", tensor, state.nested_torch_dtype,
         state.nested_block, kNestedBlock);
  }
  const FourBitLayout layout(state.dtype(), state.elements());
  constexpr auto kFloat = static_cast<std::int64_t>(sizeof(float));
  std::vector<BitsandbytesSource> sources = {
      {kCodes, 0, code_bytes(state.elements())},
      {kScales, layout.scales, layout.blocks * (state.nested ? 1 : kFloat)},
      {kValues, -1, static_cast<std::int64_t>(four_bit_values(state.dtype()).size()) * kFloat},
  };
  if (state.nested) {
    sources.push_back({kNestedScales, layout.nested_scales, layout.nested_blocks * kFloat});
    sources.push_back({kNestedValues, -1, static_cast<std::int64_t>(nested_scale_values().size()) * kFloat});
  }
  return sources;
}

void check_bitsandbytes_table(const BitsandbytesState& state, std::string_view suffix, std::span<const std::byte> bytes,
                              std::string_view tensor) {
  const auto expected = suffix == kValues ? bytes_of(four_bit_values(state.dtype())) : bytes_of(nested_scale_values());
  if (!std::ranges::equal(bytes, expected)) fail("{}{} has other values than bitsandbytes' own", tensor, suffix);
}

}  // namespace heddle
