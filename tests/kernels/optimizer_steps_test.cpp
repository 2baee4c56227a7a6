// Many steps of each optimizer on tensors of random numbers, beside what other programs made of them. The folder in
// HEDDLE_OPTIMIZER_STEPS is written by scripts/compare_optimizers.py, which runs this test.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "base/threads.h"
#include "kernels/cpu/dynamic_map.h"
#include "kernels/cpu/table.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

template <typename T>
std::vector<T> read_numbers(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<T> numbers(fs::file_size(path) / sizeof(T));
  file.read(reinterpret_cast<char*>(numbers.data()), static_cast<std::streamsize>(numbers.size() * sizeof(T)));
  return numbers;
}

template <typename T>
TensorView view(std::vector<T>& data) {
  return {data.data(), DTypeOf<T>::value, {static_cast<std::int64_t>(data.size())}};
}

/// One tensor, its states and what a reference made of them.
class Steps {
 public:
  explicit Steps(const fs::path& folder) : folder_(folder) {
    std::ifstream file(folder / "case.txt");
    std::string key;
    for (double value = 0; file >> key >> value;) settings_[key] = value;
    rows_ = whole("rows");
    columns_ = whole("columns");
    weights_ = read_numbers<float>(folder / "weights.bin");
    gradients_ = read_numbers<float>(folder / "gradients.bin");
    gradient_.resize(weights_.size());
    scratch_memory_.resize(kSharedScratchBytes + kScratchBytesPerThread + 64);
    auto* start = scratch_memory_.data() + (64 - reinterpret_cast<std::uintptr_t>(scratch_memory_.data()) % 64);
    scratch_ = {start, start + kSharedScratchBytes, kSharedScratchBytes, kScratchBytesPerThread, 1};
  }

  void run(const std::string& kind) {
    const auto n = weights_.size();
    for (std::int64_t step = 1; step <= whole("steps"); ++step) {
      std::copy_n(gradients_.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(step - 1) * n), n,
                  gradient_.begin());
      scalars_.update = step;
      scalars_.learning_rate = real("lr");
      scalars_.bias_correction1 = 1.0 - std::pow(real("beta1"), static_cast<double>(step));
      scalars_.bias_correction2 = 1.0 - std::pow(real("beta2"), static_cast<double>(step));
      take(kind);
    }
  }

  /// Greatest difference of the weights, in relation to the greatest distance that one of them went.
  double error() const {
    const auto expected = read_numbers<float>(folder_ / "expected.bin");
    const auto before = read_numbers<float>(folder_ / "weights.bin");
    double difference = 0, moved = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      difference = std::max(difference, std::abs(static_cast<double>(weights_[i]) - static_cast<double>(expected[i])));
      moved = std::max(moved, std::abs(static_cast<double>(expected[i]) - static_cast<double>(before[i])));
    }
    return difference / moved;
  }
  /// Codes of 8-bit states that differ, of both moments.
  std::int64_t different_codes() const {
    std::int64_t count = 0;
    for (const auto& [name, codes] : {std::pair{"codes1.bin", &codes1_}, std::pair{"codes2.bin", &codes2_}}) {
      const auto expected = read_numbers<std::uint8_t>(folder_ / name);
      for (std::size_t i = 0; i < expected.size(); ++i) count += expected[i] != (*codes)[i] ? 1 : 0;
    }
    return count;
  }
  /// Whether the codes mean what they mean to the reference.
  bool has_the_same_maps() const {
    const auto first = read_numbers<float>(folder_ / "map1.bin"), second = read_numbers<float>(folder_ / "map2.bin");
    for (int code = 0; code < 256; ++code) {
      const auto at = static_cast<std::uint8_t>(code);
      if (first[at] != cpu::DynamicMap::signed_map().value(at)) return false;
      if (second[at] != cpu::DynamicMap::unsigned_map().value(at)) return false;
    }
    return true;
  }
  double real(const char* key) const { return settings_.contains(key) ? settings_.at(key) : 0.0; }
  std::size_t size() const { return weights_.size(); }

 private:
  std::int64_t whole(const char* key) const { return static_cast<std::int64_t>(real(key)); }

  void call(const char* operation, std::vector<TensorView> in, const std::vector<TensorView>& out,
            const Attributes& attributes) {
    cpu::find_kernel(operation)(
        {.in = in, .out = out, .attributes = attributes, .scalars = scalars_, .scratch = scratch_});
  }

  void take(const std::string& kind) {
    const Attributes betas = {{"beta1", real("beta1")},
                              {"beta2", real("beta2")},
                              {"epsilon", real("epsilon")},
                              {"weight_decay", real("weight_decay")}};
    const std::vector<TensorView> in = {view(gradient_), {}};
    first_.resize(size());
    second_.resize(size());
    if (kind == "adamw") {
      call("adamw", in, {view(weights_), {}, view(first_), view(second_)}, betas);
    } else if (kind == "lion") {
      call("lion", in, {view(weights_), {}, view(first_)}, betas);
    } else if (kind == "adamw_8bit") {
      for (auto* codes : {&codes1_, &codes2_}) codes->resize(size());
      for (auto* scales : {&scales1_, &scales2_}) scales->resize((size() + 255) / 256);
      const auto codes = [](std::vector<std::uint8_t>& data) {
        return TensorView{data.data(), DType::u8, {static_cast<std::int64_t>(data.size())}};
      };
      call("adamw_8bit", in, {view(weights_), {}, codes(codes1_), view(scales1_), codes(codes2_), view(scales2_)},
           betas);
    } else if (kind == "sgd") {
      call("sgd", in, {view(weights_), {}, real("momentum") == 0.0 ? TensorView{} : view(first_)},
           {{"momentum", real("momentum")},
            {"dampening", real("dampening")},
            {"nesterov", whole("nesterov")},
            {"weight_decay", real("weight_decay")}});
    } else {
      take_whole(kind);
    }
  }

  void take_whole(const std::string& kind) {
    TensorView whole_gradient = view(gradient_);
    if (rows_ > 0) whole_gradient.shape = {rows_, columns_};
    double rate = 1.0;
    if (kind == "muon") {
      call("muon_momentum", {whole_gradient, {}}, {whole_gradient, view(first_)},
           {{"momentum", real("momentum")}, {"nesterov", whole("nesterov")}});
      const std::int64_t least = std::min(rows_, columns_);
      workspace_.resize(size() + static_cast<std::size_t>(2 * least * least));
      call("newton_schulz", {whole_gradient}, {whole_gradient, view(workspace_)}, {{"steps", std::int64_t{5}}});
      rate = real("rate");
    } else {
      std::vector<double> sums(size() + static_cast<std::size_t>(rows_ + columns_));
      std::vector<TensorView> out = {whole_gradient, {}, {}, {}, view(sums)};
      first_.resize(rows_ > 0 ? static_cast<std::size_t>(rows_) : size());
      second_.resize(rows_ > 0 ? static_cast<std::size_t>(columns_) : size());
      if (rows_ > 0) {
        out[1] = view(first_);
        out[2] = view(second_);
      } else {
        out[3] = view(first_);
      }
      call("adafactor", {whole_gradient, {}}, out, {{"decay_rate", -0.8}, {"clip_threshold", 1.0}});
      first_.resize(size());
      second_.resize(size());
    }
    call("descend", {view(gradient_)}, {view(weights_), {}}, {{"weight_decay", real("weight_decay")}, {"rate", rate}});
  }

  fs::path folder_;
  std::map<std::string, double> settings_;
  std::int64_t rows_ = 0, columns_ = 0;
  std::vector<float> weights_, gradients_, gradient_, first_, second_, scales1_, scales2_, workspace_;
  std::vector<std::uint8_t> codes1_, codes2_;
  std::vector<std::byte> scratch_memory_;
  Scratch scratch_;
  Scalars scalars_;
};

TEST(OptimizerSteps, FollowOtherPrograms) {
  const char* folder = std::getenv("HEDDLE_OPTIMIZER_STEPS");
  if (folder == nullptr) GTEST_SKIP() << "scripts/compare_optimizers.py makes what this compares with";
  set_threads(1);
  int cases = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    Steps steps(entry.path());
    steps.run(name.substr(0, name.find('-')));
    std::printf("%s %.3g", name.c_str(), steps.error());
    EXPECT_LE(steps.error(), steps.real("bound")) << name;
    if (name.starts_with("adamw_8bit")) {
      const double share = static_cast<double>(steps.different_codes()) / static_cast<double>(2 * steps.size());
      EXPECT_TRUE(steps.has_the_same_maps());
      std::printf(" codes %.3g", share);
      EXPECT_LE(share, steps.real("code_bound")) << name;
    }
    std::printf("\n");
    ++cases;
  }
  EXPECT_GT(cases, 0);
}

}  // namespace
}  // namespace heddle
