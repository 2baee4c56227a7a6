#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/random.h"
#include "quantize/bitsandbytes.h"
#include "quantize/four_bit.h"

namespace heddle {
namespace {

BitsandbytesState state_of(std::vector<std::int64_t> shape, bool nested) {
  BitsandbytesState state;
  state.torch_dtype = "float32";
  state.shape = std::move(shape);
  state.nested = nested;
  return state;
}

// Printed by bitsandbytes 0.50.2 for a tensor [13288] of float32 whose scales have that mean.
TEST(Bitsandbytes, TextIsThatOfPythonsJson) {
  BitsandbytesState state = state_of({13288}, true);
  state.nested_offset = 2.589003324508667;
  EXPECT_EQ(quant_state_text(state),
            R"({"quant_type": "nf4", "blocksize": 64, "dtype": "float32", "shape": [13288], "nested_blocksize": 256, )"
            R"("nested_dtype": "float32", "nested_offset": 2.589003324508667})");
  state.nested = false;
  state.shape = {3, 5};
  state.torch_dtype = "bfloat16";
  EXPECT_EQ(quant_state_text(state), R"({"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [3, 5]})");
}

// Python: repr(2.0), repr(1e-05), repr(0.0001).
TEST(Bitsandbytes, NumbersAreWrittenAsPythonWritesThem) {
  BitsandbytesState state = state_of({1}, true);
  for (const auto& [value, text] : {std::pair{2.0, "2.0"}, {1e-05, "1e-05"}, {0.0001, "0.0001"}, {0.0, "0.0"}}) {
    state.nested_offset = value;
    EXPECT_TRUE(quant_state_text(state).ends_with(std::string("\"nested_offset\": ") + text + "}")) << text;
  }
}

TEST(Bitsandbytes, PartsReadBackAreTheTensor) {
  for (const std::int64_t width : {1, 7, 64, 1001}) {
    for (const bool nested : {false, true}) {
      BitsandbytesState state = state_of({21, width}, nested);
      const std::int64_t elements = 21 * width;
      Random random(3, 3);
      std::vector<float> values(static_cast<std::size_t>(elements));
      for (float& value : values) value = static_cast<float>(random.normal());
      std::vector<std::byte> tensor(static_cast<std::size_t>(storage_bytes(state.dtype(), elements)));
      FourBitEncoder encoder(state.dtype(), elements, tensor);
      encoder.encode(0, values);
      encoder.finish();
      if (nested) {
        float mean = 0.0f;
        std::memcpy(&mean, tensor.data() + FourBitLayout(state.dtype(), elements).mean, sizeof(mean));
        state.nested_offset = static_cast<double>(mean);
      }
      const std::string text = quant_state_text(state);
      const auto parts = bitsandbytes_parts(state, tensor, text);
      EXPECT_EQ(parts.size(), nested ? 6u : 4u);
      for (const BitsandbytesPart& part : parts) {
        std::int64_t extent = 1;
        for (const std::int64_t each : part.shape) extent *= each;
        EXPECT_EQ(static_cast<std::size_t>(extent) * dtype_bytes(part.dtype), part.bytes.size()) << part.suffix;
      }
      std::vector<std::byte> back(tensor.size());
      for (const BitsandbytesSource& source : bitsandbytes_sources(state, "w")) {
        const auto part =
            std::find_if(parts.begin(), parts.end(), [&](const auto& p) { return p.suffix == source.suffix; });
        ASSERT_NE(part, parts.end()) << source.suffix;
        ASSERT_EQ(part->bytes.size(), static_cast<std::size_t>(source.bytes)) << source.suffix;
        if (source.target < 0) {
          check_bitsandbytes_table(state, source.suffix, part->bytes, "w");
        } else {
          std::copy(part->bytes.begin(), part->bytes.end(), back.begin() + source.target);
        }
      }
      const auto offset = static_cast<float>(state.nested_offset);
      if (nested) std::memcpy(back.data() + FourBitLayout(state.dtype(), elements).mean, &offset, sizeof(offset));
      EXPECT_EQ(back, tensor);
    }
  }
}

TEST(Bitsandbytes, OtherStatesAreRefusedByName) {
  const auto refusal = [](const BitsandbytesState& state) -> std::string {
    try {
      bitsandbytes_sources(state, "layer.weight");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  BitsandbytesState state = state_of({64}, true);
  EXPECT_EQ(refusal(state), "");
  state.quant_type = "fp4";
  EXPECT_EQ(refusal(state), "");
  state.quant_type = "int8";
  EXPECT_EQ(refusal(state), "layer.weight: quant_type is int8; expected nf4 or fp4");
  state = state_of({64}, false);
  state.block = 128;
  EXPECT_EQ(refusal(state), "layer.weight: blocksize is 128; expected 64");
  state = state_of({64}, true);
  state.nested_block = 512;
  EXPECT_EQ(refusal(state), "layer.weight: scales are float32 in blocks of 512; expected float32 in blocks of 256");
  std::vector<std::byte> table(16 * sizeof(float));
  EXPECT_THROW(check_bitsandbytes_table(state, ".quant_map", table, "layer.weight"), Error);
}

}  // namespace
}  // namespace heddle
