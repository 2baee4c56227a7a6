#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "program/builder.h"
#include "program/partition.h"
#include "train/executor.h"

/// Which part of each logical tensor a rank holds, and where: what loading, checkpoints and export go by.
namespace heddle {

/// Elements [begin, end) of a flattened tensor, in this rank's memory.
struct LocalTensor {
  TensorView values;  ///< one axis of end - begin elements
  std::int64_t begin = 0, end = 0;
};

/// Of a type that is not quantized.
std::span<std::byte> bytes_of(const TensorView& view);

/// The weight as the products read it: whole, or this rank's piece where stage 3 shards it. Of a quantized weight the
/// bytes.
LocalTensor local_weight(const Executor& executor, const Parameter& parameter, const Sharding& sharding);

/// The fp32 values that training changes (the master weights, or the weights themselves in fp32): the elements that
/// this rank alone answers for, so that the ranks' parts make up the tensor once. Their type is f32, except for the
/// weights of a program without an optimizer, which have their own.
LocalTensor owned_master(const Executor& executor, const Parameter& parameter, const Sharding& sharding);

/// Everything of a parameter that is filled when weights are loaded: the weight, and the master where it is separate.
/// Each is to hold the elements [begin, end) of the source, converted to its type.
std::vector<LocalTensor> loaded_tensors(const Executor& executor, const Parameter& parameter, const Sharding& sharding);

/// The name of an optimizer state in checkpoints: "exp_avg/NAME".
std::string saved_name(const OptimizerState& state, const Parameter& parameter);

/// A logical tensor of a checkpoint, of what is trained: "weights/NAME" (fp32), and the optimizer's states.
struct StateTensor {
  std::string name;
  Shape shape;                      ///< of the whole
  LocalTensor owned;                ///< saved by this rank
  std::vector<LocalTensor> loaded;  ///< filled on this rank when a checkpoint is loaded
};
std::vector<StateTensor> state_tensors(const Executor& executor, const Parameters& parameters,
                                       const Sharding& sharding);

}  // namespace heddle
