#include "formats/deepspeed_state.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "formats/deepspeed_reader.h"

namespace heddle {
namespace {

using Kind = Pickle::Kind;
using Object = Pickle::Object;

constexpr std::array<std::string_view, 27> kAllowed = {
    // DeepSpeed
    "deepspeed.runtime.fp16.loss_scaler LossScaler",
    "deepspeed.runtime.fp16.loss_scaler DynamicLossScaler",
    "deepspeed.runtime.zero.config ZeroStageEnum",
    "deepspeed.runtime.zero.offload_config OffloadDeviceEnum",
    "deepspeed.utils.tensor_fragment fragment_address",
    "deepspeed.checkpoint.universal_checkpoint SubparamShape",
    "deepspeed.runtime.pipe.topology PipelineParallelGrid",
    "deepspeed.runtime.pipe.topology PipeModelDataParallelTopology",
    "deepspeed.runtime.pipe.topology ProcessTopology",
    // PyTorch
    "torch Size",
    "torch Tensor",
    "torch device",
    "torch float32",
    "torch float16",
    "torch bfloat16",
    "torch._tensor _rebuild_from_type_v2",
    "torch.nn.parameter Parameter",
    // Python and NumPy: arguments of a training script, states of random generators
    "argparse Namespace",
    "collections defaultdict",
    "__builtin__ set",
    "builtins set",
    "_codecs encode",
    "numpy ndarray",
    "numpy dtype",
    "numpy.core.multiarray _reconstruct",
    "numpy._core.multiarray _reconstruct",
    "numpy.core.multiarray scalar",
};

/// An integer, or an enumeration's value: a call of its class.
std::int64_t stage_of(const DeepSpeedReader& reader, const Object& object) {
  if (object.kind != Kind::call) return reader.integer(object, "zero_stage");
  const auto& arguments = reader.items(reader.at(object.items[1]), Kind::tuple, "zero_stage");
  if (arguments.size() != 1) return -1;
  return reader.integer(reader.at(arguments[0]), "zero_stage");
}

/// One number, or one for each parameter group, of which those of experts are smaller.
std::int64_t partition_count_of(const DeepSpeedReader& reader, const Object& object) {
  if (object.kind == Kind::integer) return reader.integer(object, "partition_count");
  const auto counts = reader.integers(object, "partition_count");
  return counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
}

/// state: {group: {exp_avg, exp_avg_sq, ...}}, its groups in their order. Empty where one has no such tensor.
std::vector<TorchTensor> moments_of(const TorchPickle& file, const Object* state, const char* part,
                                    std::size_t groups) {
  std::vector<TorchTensor> tensors;
  if (state == nullptr || state->kind != Kind::dict) return tensors;
  for (std::size_t i = 0; i + 1 < state->items.size() && tensors.size() < groups; i += 2) {
    const Object* moment = file.pickle().find(file.pickle().at(state->items[i + 1]), part);
    if (moment == nullptr) return {};
    tensors.push_back(file.tensor(*moment, fmt::format("{} of group {}", part, tensors.size())));
  }
  return tensors;
}

}  // namespace

TorchPickle open_deepspeed_file(const std::filesystem::path& path) {
  return {path,
          [](std::string_view name) { return std::find(kAllowed.begin(), kAllowed.end(), name) != kAllowed.end(); }};
}

DeepSpeedModelState::DeepSpeedModelState(const std::filesystem::path& path) : file(open_deepspeed_file(path)) {
  const DeepSpeedReader reader(file);
  const Object& root = file.pickle().root();
  for (const char* key : {"ds_autoep_layers", "autoep_layers"}) {
    if (reader.optional(root, key) != nullptr)
      fail("{}: has {}; expert-parallel checkpoints are not read", file.path(), key);
  }
  for (const int group : reader.items(reader.require(root, "param_shapes"), Kind::list, "param_shapes"))
    param_shapes.push_back(reader.shapes(reader.at(group), "param_shapes"));
  if (const Object* shapes = reader.optional(root, "frozen_param_shapes"))
    frozen_param_shapes = reader.shapes(*shapes, "frozen_param_shapes");
  if (const Object* fragments = reader.optional(root, "frozen_param_fragments")) {
    reader.for_each(*fragments, "frozen_param_fragments", [&](const std::string& name, const Object& value) {
      frozen_param_fragments.insert_or_assign(name, file.tensor(value, name));
    });
  }
  std::set<std::string> buffer_names;
  for (const int name : reader.items(reader.require(root, "buffer_names"), Kind::list, "buffer_names"))
    buffer_names.insert(reader.text(reader.at(name), "buffer_names"));
  if (!buffer_names.empty()) {
    reader.for_each(reader.require(root, "module"), "module", [&](const std::string& name, const Object& value) {
      if (buffer_names.contains(name)) buffers.push_back(file.tensor(value, name));
    });
  }
  if (const Object* shared = reader.optional(root, "shared_params")) {
    reader.for_each(*shared, "shared_params", [&](const std::string& name, const Object& value) {
      shared_params.emplace_back(name, reader.text(value, "shared_params"));
    });
  }
}

DeepSpeedOptimizerState::DeepSpeedOptimizerState(const std::filesystem::path& path) : file(open_deepspeed_file(path)) {
  const DeepSpeedReader reader(file);
  const Object& state = reader.require(file.pickle().root(), "optimizer_state_dict");
  const std::int64_t found = stage_of(reader, reader.require(state, "zero_stage"));
  if (found < 1 || found > 3) fail("{}: its zero_stage is {}; expected 1, 2 or 3", file.path(), found);
  stage = static_cast<int>(found);
  partition_count = partition_count_of(reader, reader.require(state, "partition_count"));

  const char* key = stage == 3 ? "fp32_flat_groups" : "single_partition_of_fp32_groups";
  for (const int group : reader.items(reader.require(state, key), Kind::list, key)) {
    TorchTensor tensor = file.tensor(reader.at(group), fmt::format("{}[{}]", key, groups[0].size()));
    groups[0].push_back(std::move(tensor));
  }
  if (const Object* base = reader.optional(state, stage == 3 ? "optimizer_state_dict" : "base_optimizer_state")) {
    const Object* moments = reader.optional(*base, "state");
    for (std::size_t part = 1; part < groups.size(); ++part)
      groups[part] = moments_of(file, moments, kOptimizerPartNames[part], groups[0].size());
  }
  for (const auto& part : groups) {
    for (const auto& tensor : part) {
      if (tensor.shape.size() != 1 || !tensor.is_contiguous() || !is_floating(tensor.dtype))
        fail("{}: {} is no flat tensor of floating-point numbers", file.path(), tensor.name);
    }
  }
  if (const Object* paddings = reader.optional(state, "param_alignment_paddings")) {
    for (const int group : reader.items(*paddings, Kind::list, "param_alignment_paddings"))
      param_alignment_paddings.push_back(reader.integers(reader.at(group), "param_alignment_paddings"));
  }
}

}  // namespace heddle
