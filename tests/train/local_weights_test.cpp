#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "base/error.h"
#include "base/threads.h"
#include "comm/job.h"
#include "formats/files.h"
#include "kernels/cpu/table.h"
#include "train/compile.h"
#include "train/local_state.h"
#include "train/training_state.h"
#include "train/weights.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::ThrowsMessage;

// Neither extents nor sizes are multiples of anything, and the embedding has more than one piece of random numbers.
constexpr const char* kConfig = R"({"model_type": "llama", "hidden_size": 36, "intermediate_size": 50,
  "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 3, "vocab_size": 2003,
  "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
  "tie_word_embeddings": true})";

struct Layout {
  int stage = 0, ranks = 1;
  Precision precision = Precision::fp32;
};

RunConfig run_of(const Layout& layout) {
  RunConfig run;
  run.max_length = 8;
  run.threads = 1;
  run.zero_stage = layout.stage;
  run.ranks = layout.ranks;
  run.precision = layout.precision;
  return run;
}

CompiledRun compile(const Layout& layout, int rank, const char* config = kConfig) {
  return compile_training(parse_model_config(config, "config.json"), run_of(layout), {}, {16, 2}, std::nullopt, rank);
}

/// What one rank holds, and who it is.
struct Rank {
  Rank(const Layout& layout, Communicator& group)
      : compiled(compile(layout, group.rank())),
        executor(compiled.program_list(), compiled.plan, cpu::find_kernel, 1, &group),
        communicator(group) {}

  CompiledRun compiled;
  Executor executor;
  Communicator& communicator;
};

/// Runs body on the ranks of that layout.
void on_ranks(const Layout& layout, const std::function<void(Rank&)>& body) {
  run_ranks(layout.ranks, [&](Communicator& communicator) {
    set_threads(1);
    Rank rank(layout, communicator);
    body(rank);
    return 0;
  });
}

std::string bytes_of(const fs::path& path) { return read_text_file(path); }

class Weights : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "heddle-weights-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path make(const std::string& name) {
    fs::create_directories(folder_ / name);
    return folder_ / name;
  }

  /// Fresh weights of seed 3 exported by that layout; the bytes of the file.
  std::string fresh_export(const std::string& name, const Layout& layout, DType dtype = DType::f32) {
    const fs::path folder = make(name);
    on_ranks(layout, [&](Rank& rank) {
      const auto& [parameters, sharding] = std::tie(rank.compiled.parameters, rank.compiled.sharding);
      initialize_weights(parameters, 3, sharding, rank.executor);
      export_weights(folder, fresh_source(parameters, dtype), parameters, sharding, rank.executor, std::nullopt,
                     nullptr, rank.communicator);
    });
    return bytes_of(folder / "model.safetensors");
  }

  fs::path folder_;
};

const std::array kLayouts = {Layout{0, 1},
                             Layout{0, 3},
                             Layout{1, 2},
                             Layout{2, 3},
                             Layout{3, 4},
                             Layout{3, 3, Precision::bf16},
                             Layout{1, 4, Precision::bf16},
                             Layout{0, 1, Precision::fp16}};

std::string text_of(const Layout& layout) {
  return fmt::format("stage {}, {} ranks, precision {}", layout.stage, layout.ranks,
                     static_cast<int>(layout.precision));
}

TEST_F(Weights, FreshOnesAndTheirExportDoNotDependOnTheLayout) {
  const std::string reference = fresh_export("reference", {});
  EXPECT_GT(reference.size(), std::size_t{4} * 2003 * 36);
  for (std::size_t i = 0; i < kLayouts.size(); ++i)
    EXPECT_EQ(fresh_export(fmt::format("layout-{}", i), kLayouts[i]), reference) << text_of(kLayouts[i]);
}

TEST_F(Weights, AnExportLeavesNothingBesideIt) {
  fresh_export("out", {3, 4});
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder_ / "out")) names.push_back(entry.path().filename().string());
  EXPECT_THAT(names, testing::ElementsAre("model.safetensors"));
}

TEST_F(Weights, AFailedExportLeavesTheOldFile) {
  const std::string reference = fresh_export("out", {});
  fs::create_directory(folder_ / "out" / "model.safetensors.partial");  // cannot be written to
  EXPECT_THAT(
      [&] {
        fresh_export("out", {2, 3}, DType::bf16);
      },
      ThrowsMessage<Error>(HasSubstr("model.safetensors.partial")));
  EXPECT_EQ(bytes_of(folder_ / "out" / "model.safetensors"), reference);
}

/// What each rank loads is the source's elements, in each type that it holds; checked one element at a time.
void expect_loaded(const Rank& rank, const std::map<std::string, std::vector<float>>& wanted, const Layout& layout) {
  for (const auto& parameter : rank.compiled.parameters.list) {
    const auto& values = wanted.at(parameter.name);
    for (const auto& tensor : loaded_tensors(rank.executor, parameter, rank.compiled.sharding)) {
      for (std::int64_t i = tensor.begin; i < tensor.end; ++i) {
        float expected = values[static_cast<std::size_t>(i)], found = 0;
        if (tensor.values.dtype == DType::bf16) expected = static_cast<float>(BFloat16(expected));
        if (tensor.values.dtype == DType::f16) expected = static_cast<float>(Float16(expected));
        const auto* at = static_cast<const std::byte*>(tensor.values.data) +
                         static_cast<std::size_t>(i - tensor.begin) * dtype_bytes(tensor.values.dtype);
        convert(at, tensor.values.dtype, &found, DType::f32, 1);
        ASSERT_EQ(found, expected) << text_of(layout) << ", " << parameter.name << "[" << i << "]";
      }
    }
  }
}

std::map<std::string, std::vector<float>> read_all(const WeightFolder& folder) {
  std::map<std::string, std::vector<float>> all;
  for (const auto* tensor : folder.tensors()) {
    auto& values = all[tensor->name];
    values.resize((tensor->end - tensor->begin) / sizeof(float));
    folder.read(*tensor, 0, std::as_writable_bytes(std::span(values)));
  }
  return all;
}

TEST_F(Weights, EachRankLoadsItsElementsRoundedToEachTypeThatItHolds) {
  fresh_export("source", {});
  const WeightFolder source(folder_ / "source");
  const auto wanted = read_all(source);
  for (const auto& layout : kLayouts) {
    on_ranks(layout, [&](Rank& rank) {
      const auto& parameters = rank.compiled.parameters;
      const auto matched = match_weights(source, parameters, parse_model_config(kConfig, "config.json"));
      load_weights(source, matched, parameters, rank.compiled.sharding, rank.executor);
      expect_loaded(rank, wanted, layout);
    });
  }
}

/// Fills what this rank owns with numbers that tell tensor and element.
void fill_owned(Rank& rank) {
  float tensor_number = 0;
  for (const auto& tensor : state_tensors(rank.executor, rank.compiled.parameters, rank.compiled.sharding)) {
    tensor_number += 1;
    for (std::int64_t i = tensor.owned.begin; i < tensor.owned.end; ++i)
      tensor.owned.values.as<float>()[i - tensor.owned.begin] = tensor_number + static_cast<float>(i) * 0x1p-18f;
  }
}

TEST_F(Weights, ACheckpointOfAnyLayoutLoadsIntoAnyOther) {
  for (std::size_t i = 0; i < kLayouts.size(); ++i) {
    on_ranks(kLayouts[i], [&](Rank& rank) {
      fill_owned(rank);
      save_checkpoint(folder_, static_cast<std::int64_t>(i),
                      checkpoint_pieces(rank.executor, rank.compiled.parameters, rank.compiled.sharding),
                      Json::object(), {}, rank.communicator);
    });
    for (const auto& layout : kLayouts) {
      on_ranks(layout, [&](Rank& rank) {
        const Checkpoint checkpoint = open_checkpoint(folder_ / fmt::format("checkpoint-{}", i), rank.communicator);
        require_same_model(checkpoint, rank.compiled.parameters, "");
        restore_tensors(checkpoint, rank.compiled.parameters, rank.compiled.sharding, rank.executor);
        float tensor_number = 0;
        for (const auto& tensor : state_tensors(rank.executor, rank.compiled.parameters, rank.compiled.sharding)) {
          tensor_number += 1;
          for (std::int64_t j = tensor.owned.begin; j < tensor.owned.end; ++j) {
            ASSERT_EQ(tensor.owned.values.as<float>()[j - tensor.owned.begin],
                      tensor_number + static_cast<float>(j) * 0x1p-18f)
                << text_of(kLayouts[i]) << " into " << text_of(layout) << ": " << tensor.name << "[" << j << "]";
          }
        }
      });
    }
  }
}

TEST_F(Weights, ACheckpointHoldsMastersAndMomentsOnce) {
  on_ranks({2, 3, Precision::bf16}, [&](Rank& rank) {
    fill_owned(rank);
    save_checkpoint(folder_, 1, checkpoint_pieces(rank.executor, rank.compiled.parameters, rank.compiled.sharding),
                    Json::object(), {}, rank.communicator);
  });
  std::uintmax_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(folder_ / "checkpoint-1")) bytes += entry.file_size();
  const std::uint64_t state = checkpoint_bytes(compile({}, 0).parameters);
  EXPECT_EQ(state, std::uint64_t{12} * static_cast<std::uint64_t>(compile({}, 0).parameters.count()));
  EXPECT_GT(bytes, state);
  EXPECT_LT(bytes, state + 65536);  // headers and manifest
}

TEST_F(Weights, ACheckpointOfAnotherModelIsRefusedByName) {
  on_ranks({}, [&](Rank& rank) {
    save_checkpoint(folder_, 1, checkpoint_pieces(rank.executor, rank.compiled.parameters, rank.compiled.sharding),
                    Json::object(), {}, rank.communicator);
  });
  const Checkpoint checkpoint(folder_ / "checkpoint-1");
  const auto refuses = [&](const std::string& from, const std::string& to, const std::string& text) {
    std::string config = kConfig;
    config.replace(config.find(from), from.size(), to);
    const auto compiled = compile({}, 0, config.c_str());
    EXPECT_THAT([&] { require_same_model(checkpoint, compiled.parameters, ""); },
                ThrowsMessage<Error>(HasSubstr(text)));
  };
  refuses("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3", "model.layers.2.");
  refuses("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1", "model.layers.1.");
  refuses("\"vocab_size\": 2003", "\"vocab_size\": 2004", "[2003, 36]");
}

}  // namespace
}  // namespace heddle
