#include "train/bitsandbytes_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>

#include "base/error.h"
#include "formats/json.h"
#include "quantize/bitsandbytes.h"
#include "quantize/decode.h"
#include "train/folder_export.h"
#include "train/four_bit_export.h"
#include "train/run_setup.h"
#include "train/weights.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// Tensors in memory, as a safetensors file has them.
class TensorsInMemory final : public WeightFiles {
 public:
  void add(const std::string& name, DType dtype, std::vector<std::int64_t> shape, std::span<const std::byte> bytes) {
    tensors_.push_back({name, dtype, std::move(shape), 0, bytes.size(), "model.safetensors"});
    bytes_[name].assign(bytes.begin(), bytes.end());
  }
  void remove(const std::string& name) {
    std::erase_if(tensors_, [&](const StoredTensor& tensor) { return tensor.name == name; });
  }
  std::vector<std::byte>& bytes(const std::string& name) { return bytes_.at(name); }

  std::vector<const StoredTensor*> tensors() const override {
    std::vector<const StoredTensor*> all;
    for (const StoredTensor& tensor : tensors_) all.push_back(&tensor);
    return all;
  }
  const StoredTensor* find(const std::string& name) const override {
    const auto found = std::find_if(tensors_.begin(), tensors_.end(), [&](const auto& t) { return t.name == name; });
    return found == tensors_.end() ? nullptr : &*found;
  }
  void read(const StoredTensor& tensor, std::uint64_t offset, std::span<std::byte> target) const override {
    const auto& all = bytes_.at(tensor.name);
    ASSERT_LE(offset + target.size(), all.size());
    std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(offset), target.size(), target.begin());
  }
  const std::map<std::string, std::string>& weight_map() const override { return none_; }

 private:
  std::deque<StoredTensor> tensors_;
  std::map<std::string, std::vector<std::byte>> bytes_;
  std::map<std::string, std::string> none_;
};

constexpr std::int64_t kRows = 21, kColumns = 67;  // the last block is short, and codes and scales are padded

std::vector<std::byte> encoded(DType type) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < kRows * kColumns; ++i) values.push_back(std::sin(static_cast<float>(i) * 0.37f));
  std::vector<std::byte> tensor(static_cast<std::size_t>(storage_bytes(type, kRows * kColumns)));
  FourBitEncoder encoder(type, kRows * kColumns, tensor);
  encoder.encode(0, values);
  encoder.finish();
  return tensor;
}

/// What bitsandbytes stores of encoded(type) as "w", beside a plain tensor "norm".
std::unique_ptr<TensorsInMemory> stored(DType type) {
  const auto tensor = encoded(type);
  BitsandbytesState state;
  state.quant_type = quant_type_of(type);
  state.torch_dtype = "float32";
  state.shape = {kRows, kColumns};
  state.nested = is_double_quantized(type);
  if (state.nested) {
    float mean = 0.0f;
    std::memcpy(&mean, tensor.data() + FourBitLayout(type, kRows * kColumns).mean, sizeof(mean));
    state.nested_offset = static_cast<double>(mean);
  }
  const std::string text = quant_state_text(state);
  auto files = std::make_unique<TensorsInMemory>();
  for (const auto& part : bitsandbytes_parts(state, tensor, text))
    files->add("w" + part.suffix, part.dtype, part.shape, part.bytes);
  const float one = 1.0f;
  files->add("norm", DType::f32, {1}, std::as_bytes(std::span(&one, 1)));
  return files;
}

std::string refusal(std::unique_ptr<WeightFiles> files) {
  try {
    BitsandbytesWeights weights(std::move(files));
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(BitsandbytesWeights, AnyBytesOfATensorAreThoseOfItsParts) {
  for (const DType type : {DType::nf4, DType::nf4_double, DType::fp4, DType::fp4_double}) {
    const BitsandbytesWeights weights(stored(type));
    ASSERT_EQ(weights.tensors().size(), 2u);
    const StoredTensor* tensor = weights.find("w");
    EXPECT_EQ(weights.tensors()[0], tensor);
    EXPECT_EQ(weights.tensors()[1]->name, "norm");
    EXPECT_EQ(tensor->dtype, type);
    EXPECT_EQ(tensor->shape, (std::vector<std::int64_t>{kRows, kColumns}));
    const auto whole = encoded(type);
    ASSERT_EQ(tensor->bytes(), whole.size());
    for (const std::size_t begin : {std::size_t{0}, std::size_t{5}, std::size_t{701}, whole.size() - 3}) {
      for (const std::size_t count : {std::size_t{3}, std::size_t{64}, whole.size()}) {
        std::vector<std::byte> read(std::min(count, whole.size() - begin), std::byte{0xee});
        weights.read(*tensor, begin, read);
        EXPECT_TRUE(std::equal(read.begin(), read.end(), whole.begin() + static_cast<std::ptrdiff_t>(begin)))
            << safetensors_name(type) << " from " << begin;
      }
    }
  }
}

TEST(BitsandbytesWeights, PartsThatDoNotFitAreRefusedByName) {
  EXPECT_EQ(refusal(stored(DType::nf4_double)), "no error");
  auto files = stored(DType::nf4_double);
  files->remove("w.nested_absmax");
  EXPECT_THAT(refusal(std::move(files)), HasSubstr("tensor w.nested_absmax is missing"));
  files = stored(DType::nf4);
  files->remove("w.absmax");
  files->add("w.absmax", DType::f32, {21}, std::vector<std::byte>(84));
  EXPECT_THAT(refusal(std::move(files)), HasSubstr("tensor w.absmax has 84 bytes; "));  // 22 scales of 1407 elements
  files = stored(DType::fp4);
  files->bytes("w.quant_map")[0] = std::byte{1};
  EXPECT_THAT(refusal(std::move(files)), HasSubstr("w.quant_map has other values"));
  files = stored(DType::nf4);
  files->bytes("w.quant_state.bitsandbytes__nf4")[0] = std::byte{'!'};
  EXPECT_THAT(refusal(std::move(files)), HasSubstr("tensor w.quant_state.bitsandbytes__nf4"));
}

/// stories260K in four bits, in a folder of its own, removed after the test.
class FourBitFolder : public testing::Test {
 protected:
  void SetUp() override {
    const char* data = std::getenv("HEDDLE_DATA");
    stories_ = fs::path(data != nullptr ? data : HEDDLE_SOURCE_DIR "/../shared/data") / "models/stories260K/hf";
    if (!fs::exists(stories_)) GTEST_SKIP() << stories_ << " is absent";
  }
  ~FourBitFolder() override { fs::remove_all(folder_); }

  fs::path stories_;
  fs::path folder_ = fs::temp_directory_path() /
                     (std::string("heddle_four_bits_") + testing::UnitTest::GetInstance()->current_test_info()->name() +
                      "_" + std::to_string(::getpid()));
};

TEST_F(FourBitFolder, WhatIsWrittenReadsBackToTheByte) {
  const ModelSource source = open_model(stories_);
  const auto files = open_weights(source);
  for (const DType type : {DType::nf4_double, DType::fp4}) {
    export_four_bit_folder(source, folder_, type);
    const ModelSource written = open_model(folder_);
    EXPECT_TRUE(written.is_bitsandbytes);
    EXPECT_THAT(read_json_file(folder_ / "config.json").dump(), HasSubstr("\"load_in_4bit\":true"));
    EXPECT_FALSE(parse_json(written.config_text, "config.json").contains("quantization_config"));
    const auto weights = open_weights(written);
    EXPECT_EQ(weights->tensors().size(), files->tensors().size());
    std::size_t quantized = 0;
    for (const StoredTensor* tensor : files->tensors()) {
      const StoredTensor& back = *weights->find(tensor->name);
      const bool is_linear = tensor->name.find("_proj.weight") != std::string::npos;
      EXPECT_EQ(back.dtype, is_linear ? type : tensor->dtype) << tensor->name;
      std::vector<std::byte> expected(tensor->bytes()), found(back.bytes());
      files->read(*tensor, 0, expected);
      if (is_linear) expected = encode_four_bit(*files, *tensor, type);
      weights->read(back, 0, found);
      EXPECT_EQ(found, expected) << tensor->name;
      quantized += is_linear ? 1u : 0u;
    }
    EXPECT_EQ(quantized, 5u * 7u);  // five layers: q, k, v, o, gate, up, down
  }
}

TEST_F(FourBitFolder, ExportsAsTheValuesThatItsCodesStandFor) {
  export_four_bit_folder(open_model(stories_), folder_ / "quantized", DType::nf4);
  const ModelSource model = open_model(folder_ / "quantized");
  export_folder(model, folder_ / "decoded", std::nullopt);
  const auto quantized = open_weights(model), decoded = open_weights(open_model(folder_ / "decoded"));
  const std::string name = "model.layers.0.mlp.down_proj.weight";
  const StoredTensor &packed = *quantized->find(name), &plain = *decoded->find(name);
  ASSERT_EQ(plain.dtype, DType::f32);  // as config.json says
  std::vector<std::byte> bytes(packed.bytes());
  quantized->read(packed, 0, bytes);
  std::vector<float> found(plain.bytes() / sizeof(float)), expected(found.size());
  decoded->read(plain, 0, std::as_writable_bytes(std::span(found)));
  const auto elements = static_cast<std::int64_t>(expected.size());
  decode(DType::nf4, bytes.data(), elements, 0, elements, expected.data());
  EXPECT_EQ(found, expected);
}

TEST_F(FourBitFolder, IsNotQuantizedAgain) {
  export_four_bit_folder(open_model(stories_), folder_, DType::nf4);
  EXPECT_THROW(export_four_bit_folder(open_model(folder_), folder_ / "again", DType::fp4), Error);
}

}  // namespace
}  // namespace heddle
