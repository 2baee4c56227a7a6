#include "formats/deepspeed_state.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "formats/json.h"

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

/// Reads the parts of a file by their keys; where one is absent or something else, an Error says where.
class StateReader {
 public:
  explicit StateReader(const TorchPickle& file) : file_(file), pickle_(file.pickle()) {}

  const Object& require(const Object& dictionary, const std::string& key) const {
    const Object* found = pickle_.find(dictionary, key);
    if (found == nullptr) fail("{}: has no {}", file_.path(), key);
    return *found;
  }
  /// Null for an absent key and for None.
  const Object* optional(const Object& dictionary, const std::string& key) const {
    const Object* found = pickle_.find(dictionary, key);
    return found == nullptr || found->kind == Kind::none ? nullptr : found;
  }
  const Object& expect(const Object& object, Kind kind, const std::string& where) const {
    if (object.kind != kind) fail("{}: {} is not what DeepSpeed writes there", file_.path(), text_excerpt(where));
    return object;
  }
  const std::vector<int>& items(const Object& object, Kind kind, const std::string& where) const {
    return expect(object, kind, where).items;
  }
  const std::string& text(const Object& object, const std::string& where) const {
    return expect(object, Kind::text, where).text;
  }
  std::int64_t integer(const Object& object, const std::string& where) const {
    const std::int64_t number = expect(object, Kind::integer, where).number;
    if (number < 0) fail("{}: {} is {}; expected at least 0", file_.path(), text_excerpt(where), number);
    return number;
  }
  /// A list or tuple.
  std::vector<std::int64_t> integers(const Object& object, const std::string& where) const {
    std::vector<std::int64_t> values;
    for (const int item : items(object, object.kind == Kind::list ? Kind::list : Kind::tuple, where))
      values.push_back(integer(pickle_.at(item), where));
    return values;
  }
  /// torch.Size of a tuple, or the tuple alone.
  std::vector<std::int64_t> shape(const Object& object, const std::string& where) const {
    if (object.kind != Kind::call) return checked(integers(object, where), where);
    const auto& arguments = items(pickle_.at(object.items[1]), Kind::tuple, where);
    if (pickle_.at(object.items[0]).text != "torch Size" || arguments.size() != 1)
      fail("{}: the shape of {} is none", file_.path(), text_excerpt(where));
    return checked(integers(pickle_.at(arguments[0]), where), where);
  }
  std::vector<NamedShape> shapes(const Object& dictionary, const std::string& where) const {
    std::vector<NamedShape> all;
    for_each(dictionary, where,
             [&](const std::string& name, const Object& value) { all.emplace_back(name, shape(value, name)); });
    return all;
  }
  /// Calls use(name, value).
  template <typename Use>
  void for_each(const Object& dictionary, const std::string& where, Use use) const {
    const auto& list = items(dictionary, Kind::dict, where);
    for (std::size_t i = 0; i < list.size(); i += 2) use(text(pickle_.at(list[i]), where), pickle_.at(list[i + 1]));
  }
  const Object& at(int index) const { return pickle_.at(index); }

 private:
  /// Their product fits, so that nobody need ask again.
  std::vector<std::int64_t> checked(std::vector<std::int64_t> extents, const std::string& where) const {
    std::int64_t elements = 1;
    for (const std::int64_t extent : extents) {
      if (__builtin_mul_overflow(elements, extent, &elements) || elements > INT64_MAX / 64)
        fail("{}: the shape of {} has more elements than any file", file_.path(), text_excerpt(where));
    }
    return extents;
  }

  const TorchPickle& file_;
  const Pickle& pickle_;
};

/// An integer, or an enumeration's value: a call of its class.
std::int64_t stage_of(const StateReader& reader, const Object& object) {
  if (object.kind != Kind::call) return reader.integer(object, "zero_stage");
  const auto& arguments = reader.items(reader.at(object.items[1]), Kind::tuple, "zero_stage");
  if (arguments.size() != 1) return -1;
  return reader.integer(reader.at(arguments[0]), "zero_stage");
}

/// One number, or one for each parameter group, of which those of experts are smaller.
std::int64_t partition_count_of(const StateReader& reader, const Object& object) {
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
  const StateReader reader(file);
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
  const StateReader reader(file);
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
