#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "formats/gguf.h"
#include "models/gguf_config.h"
#include "models/model_config.h"

namespace heddle {

/// GGUF files in a folder of the test's own.
class GgufModelFile : public testing::Test {
 protected:
  struct Tensor {
    std::string name;
    std::vector<std::int64_t> shape;  // outermost first
    DType dtype = DType::f32;
    std::string bytes = {};  // empty: zeros
  };
  using Keys = std::vector<std::pair<std::string, GgufValue>>;

  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "heddle_gguf.XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  /// Later keys replace earlier ones; a text "drop" leaves one out.
  std::filesystem::path write(const Keys& keys, const std::vector<Tensor>& tensors) const {
    const auto path = folder_ / "model.gguf";
    Keys chosen;
    for (const auto& entry : keys) {
      std::erase_if(chosen, [&](const auto& other) { return other.first == entry.first; });
      if (entry.second != GgufValue(std::string("drop"))) chosen.push_back(entry);
    }
    GgufMetadata metadata(path.string());
    for (auto& [key, value] : chosen) metadata.add(key, value);
    std::vector<GgufWriter::Entry> entries;
    for (const Tensor& tensor : tensors) entries.push_back({tensor.name, tensor.dtype, tensor.shape});
    GgufWriter writer(path, metadata, entries);
    for (const Tensor& tensor : tensors) {
      std::int64_t elements = 1;
      for (const std::int64_t extent : tensor.shape) elements *= extent;
      std::string bytes = tensor.bytes;
      bytes.resize(static_cast<std::size_t>(storage_bytes(tensor.dtype, elements)));
      writer.append(std::as_bytes(std::span(bytes)));
    }
    writer.finish();
    return path;
  }

  /// What llama.cpp's converter writes for a small model of an architecture in Llama's spelling.
  static Keys keys_of(const std::string& architecture, const Keys& more = {}) {
    const std::string a = architecture + ".";
    Keys keys = {{"general.architecture", architecture},
                 {a + "block_count", std::uint64_t{4}},
                 {a + "context_length", std::uint64_t{64}},
                 {a + "embedding_length", std::uint64_t{16}},
                 {a + "feed_forward_length", std::uint64_t{24}},
                 {a + "attention.head_count", std::uint64_t{4}},
                 {a + "attention.head_count_kv", std::uint64_t{2}},
                 {a + "attention.key_length", std::uint64_t{8}},
                 {a + "attention.value_length", std::uint64_t{8}},
                 {a + "attention.layer_norm_rms_epsilon", static_cast<double>(1e-5f)},
                 {a + "rope.freq_base", 10000.0},
                 {a + "rope.dimension_count", std::uint64_t{8}}};
    for (const auto& [key, value] : more) keys.emplace_back(key.starts_with("general") ? key : a + key, value);
    return keys;
  }
  static std::vector<Tensor> table() { return {{"token_embd.weight", {130, 16}}}; }

  ModelConfig config_of(const Keys& keys, const std::vector<Tensor>& tensors = table()) const {
    const GgufFile file(write(keys, tensors));
    return parse_model_config(gguf_model_config(file), "model.gguf");
  }
  std::string error_of(const Keys& keys, const std::vector<Tensor>& tensors = table()) const {
    try {
      config_of(keys, tensors);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  static std::string bytes_of(const std::vector<float>& values) {
    std::string bytes(values.size() * sizeof(float), '\0');
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }

  std::filesystem::path folder_;
};

}  // namespace heddle
