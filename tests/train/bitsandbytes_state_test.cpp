#include "train/bitsandbytes_state.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace heddle {
namespace {

// As bitsandbytes 0.50.2 stored it.
constexpr std::string_view kNested =
    R"({"quant_type": "nf4", "blocksize": 64, "dtype": "float32", "shape": [13288], "nested_blocksize": 256, )"
    R"("nested_dtype": "float32", "nested_offset": 2.589003324508667})";
constexpr std::string_view kSingle =
    R"({"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [576, 1536]})";

TEST(BitsandbytesState, ReadsWhatIsWritten) {
  const BitsandbytesState nested = parse_quant_state(kNested, "w");
  EXPECT_EQ(nested.dtype(), DType::nf4_double);
  EXPECT_EQ(nested.elements(), 13288);
  EXPECT_EQ(nested.nested_offset, 2.589003324508667);
  EXPECT_EQ(quant_state_text(nested), kNested);
  const BitsandbytesState single = parse_quant_state(kSingle, "w");
  EXPECT_EQ(single.dtype(), DType::nf4);
  EXPECT_EQ(single.elements(), 576 * 1536);
  EXPECT_EQ(quant_state_text(single), kSingle);
}

TEST(BitsandbytesState, MalformedTextIsRefusedByName) {
  for (const std::string_view text :
       {"", "[]", "{}", R"({"quant_type": "nf4", "blocksize": 64, "dtype": "float32"})",
        R"({"quant_type": "nf4", "blocksize": 64, "dtype": "float32", "shape": 5})",
        R"({"quant_type": "nf4", "blocksize": 64, "dtype": "float32", "shape": [0]})",
        R"({"quant_type": "nf4", "blocksize": 64, "dtype": "float32", "shape": [-5]})",
        R"({"quant_type": "nf4", "blocksize": 64, "dtype": "float32", "shape": [1099511627776, 1099511627776]})",
        R"({"quant_type": "nf4", "blocksize": 0, "dtype": "float32", "shape": [5]})",
        R"({"quant_type": "nf4", "blocksize": 64, "dtype": "float32", "shape": [5], "nested_offset": 1})",
        R"({"quant_type": "nf4", "blocksize": 64, "dtype": "float32", "shape": [5], "other": 1})"}) {
    try {
      parse_quant_state(text, "layer.weight");
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_TRUE(std::string_view(error.what()).starts_with("layer.weight: ")) << error.what();
    }
  }
}

}  // namespace
}  // namespace heddle
