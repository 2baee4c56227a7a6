#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "config/run_config.h"
#include "formats/json.h"

/// A small run made from nothing: a config.json of a family, rows of ids, a folder that goes when the test ends.
namespace heddle::endtoend {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "heddle-test-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline Json llama_config() {
  return {{"model_type", "llama"},    {"hidden_size", 32},
          {"intermediate_size", 48},  {"num_hidden_layers", 2},
          {"num_attention_heads", 4}, {"num_key_value_heads", 2},
          {"vocab_size", 96},         {"max_position_embeddings", 64},
          {"rms_norm_eps", 1e-5},     {"rope_theta", 10000.0},
          {"hidden_act", "silu"},     {"tie_word_embeddings", true},
          {"bos_token_id", nullptr},  {"eos_token_id", nullptr}};
}

inline Json gpt2_config() {
  return {{"model_type", "gpt2"},   {"n_embd", 32},
          {"n_layer", 2},           {"n_head", 4},
          {"n_positions", 64},      {"vocab_size", 96},
          {"attn_pdrop", 0.1},      {"embd_pdrop", 0.1},
          {"resid_pdrop", 0.1},     {"bos_token_id", nullptr},
          {"eos_token_id", nullptr}};
}

/// Rows of different lengths, the same on every machine.
inline void write_rows(const std::filesystem::path& path, int rows = 12) {
  std::ofstream file(path);
  std::uint32_t state = 12345;
  for (int row = 0; row < rows; ++row) {
    Json ids = Json::array();
    for (int i = 0; i < 12 + row % 5 * 4; ++i) {
      state = state * 1664525u + 1013904223u;
      ids.push_back((state >> 16) % 96);
    }
    file << Json{{"input_ids", ids}}.dump() << "\n";
  }
}

/// Writes config.json and rows.jsonl into `folder` and gives the run file's content for output_dir `name`.
inline Json small_run(const std::filesystem::path& folder, const Json& config, const std::string& name) {
  std::ofstream(folder / "config.json") << config.dump();
  write_rows(folder / "rows.jsonl");
  return {{"config_name", (folder / "config.json").string()},
          {"train_file", (folder / "rows.jsonl").string()},
          {"output_dir", (folder / name).string()},
          {"max_length", 40},
          {"packing", false},
          {"per_device_train_batch_size", 2},
          {"gradient_accumulation_steps", 2},
          {"max_steps", 6},
          {"learning_rate", 1e-3},
          {"seed", 5}};
}

inline RunFile run_file(const Json& run) { return RunFile::parse(run.dump(), "run.json", {}); }

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// {loss, grad_norm} of each step of an output_dir, as text: equal text is equal bits.
inline std::string trajectory(const std::filesystem::path& folder) {
  std::ifstream file(folder / "metrics.jsonl");
  std::string line, text;
  while (std::getline(file, line)) {
    const Json row = parse_json(line, "metrics.jsonl");
    if (row.contains("loss")) text += row["loss"].dump() + " " + row["grad_norm"].dump() + "\n";
  }
  return text;
}

}  // namespace heddle::endtoend
