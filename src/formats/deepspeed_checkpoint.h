#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "formats/deepspeed_files.h"
#include "formats/deepspeed_progress.h"
#include "formats/deepspeed_state.h"

namespace heddle {

/// A checkpoint of DeepSpeed's ZeRO, stages 1 to 3 or universal: the weights as its zero_to_fp32.py puts them together,
/// and the moments of Adam in the same way. Nothing is gathered: a tensor is a list of runs in the ranks' files.
/// https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/utils/zero_to_fp32.py
///
/// Stages 1 and 2 lay the parameters of a group end to end, each with its padding, and cut that evenly among the ranks.
/// Stage 3 cuts each parameter evenly, the last rank's part padded, and lays a rank's parts end to end. Frozen
/// parameters lie beside the model, whole or (stage 3) cut in the same way, and buffers whole.
class DeepSpeedCheckpoint {
 public:
  struct Tensor {
    std::string name;
    DType dtype = DType::f32;  ///< f32 of all that has floating-point numbers
    std::vector<std::int64_t> shape;
    bool is_trained = false;  ///< has moments; false of frozen parameters, buffers, second names of others
  };

  /// Throws Error naming the file and what is wrong: ranks that are missing or disagree, groups of another size than
  /// the model's parameters.
  explicit DeepSpeedCheckpoint(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return files_.folder; }
  int stage() const { return stage_; }  ///< 0: universal
  std::size_t ranks() const { return ranks_; }
  /// Buffers, frozen parameters, parameters by group, second names: DeepSpeed's order.
  const std::vector<Tensor>& tensors() const { return tensors_; }
  /// Calls use(bytes) for a tensor's elements in their order, piece by piece. Throws Error where there is no such part.
  void read(std::size_t tensor, OptimizerPart part, const std::function<void(std::span<const std::byte>)>& use) const;
  /// Fills `target` with its elements from number `begin` on. May be called from many threads at once.
  void read(std::size_t tensor, OptimizerPart part, std::int64_t begin, std::span<std::byte> target) const;
  /// Compares the checksums of all that read() reads of this part.
  void verify(OptimizerPart part) const;
  /// Whether the optimizer holds this part of what is trained.
  bool has(OptimizerPart part) const;
  /// Throws Error where the ranks' optimizers have made different numbers of steps.
  DeepSpeedProgress progress() const;

 private:
  /// Elements [begin, begin + count) of a tensor of a file, which is contiguous unless they are all of it.
  struct Run {
    const TorchPickle* file = nullptr;
    TorchTensor tensor;
    std::int64_t begin = 0, count = 0;
  };
  using Runs = std::vector<Run>;
  struct Source {
    std::array<Runs, 3> runs;         // by OptimizerPart
    std::filesystem::path universal;  // or the folder with a file of each part
  };

  void open_ranks();
  void add(Tensor tensor, Source source);
  void add_buffers();
  void add_frozen();
  void add_groups();
  void add_cut_parameters();
  void add_universal();
  void add_shared();
  const Runs& runs_of(std::size_t tensor, OptimizerPart part) const;
  template <typename Use>
  void with_runs(std::size_t tensor, OptimizerPart part, Use use) const;

  DeepSpeedFiles files_;
  int stage_ = 0;
  std::size_t ranks_ = 0;
  std::deque<DeepSpeedModelState> models_;  // deques: runs point into them
  std::deque<DeepSpeedOptimizerState> optimizers_;
  std::vector<Tensor> tensors_;
  std::vector<Source> sources_;  // of the tensors
};

}  // namespace heddle
