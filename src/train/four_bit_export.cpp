#include "train/four_bit_export.h"

#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "formats/files.h"
#include "formats/json.h"
#include "formats/open_file.h"
#include "models/model.h"
#include "models/module_list.h"
#include "quantize/bitsandbytes.h"
#include "train/compile.h"
#include "train/model_folder.h"
#include "train/weight_copy.h"
#include "train/weight_layout.h"
#include "train/weights.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

/// A model in four bits that is laid out, then written.
class FourBitFolder {
 public:
  FourBitFolder(const WeightFiles& files, const WeightSource& source, const std::set<std::string>& quantized,
                DType type, const fs::path& folder)
      : files_(files), type_(type) {
    parts_.is_sharded = source.is_sharded;
    for (const auto& entry : source.entries) {
      if (quantized.contains(entry.parameter)) {
        add_quantized(entry);
      } else {
        add(entry.name, entry.dtype, files.find(entry.name)->shape, entry.file);
        plain_.insert(entry.name);
      }
    }
    std::stable_sort(parts_.entries.begin(), parts_.entries.end(), [](const auto& a, const auto& b) {
      return dtype_bytes(a.dtype) > dtype_bytes(b.dtype);  // each at a multiple of its element's size
    });
    layout_ = lay_out(folder, parts_, std::nullopt, [&](const std::string& part) { return shapes_.at(part); });
  }

  void write() const {
    try {
      create_files(layout_);
      for (const FileLayout& placed : layout_.files) write_file(placed);
      commit_files(layout_);
    } catch (...) {
      give_up_files(layout_);
      throw;
    }
  }

 private:
  struct Quantized {
    std::string file;
    BitsandbytesState state;
  };

  void add(const std::string& name, DType dtype, const std::vector<std::int64_t>& shape, const std::string& file) {
    parts_.entries.push_back({name, name, dtype, file});
    shapes_.emplace(name, shape);
  }

  /// The mean of the scales is part of the state's text, whose length is part of the layout: so a tensor is encoded
  /// here already, and once more when it is written, rather than kept.
  void add_quantized(const WeightSource::Entry& entry) {
    const StoredTensor& stored = *files_.find(entry.name);
    BitsandbytesState state;
    state.quant_type = quant_type_of(type_);
    state.torch_dtype = torch_name(entry.dtype);
    state.shape = stored.shape;
    state.nested = is_double_quantized(type_);
    std::vector<std::byte> tensor(static_cast<std::size_t>(storage_bytes(type_, state.elements())));
    if (state.nested) {
      tensor = encode_four_bit(files_, stored, type_);
      float mean = 0.0f;
      std::memcpy(&mean, tensor.data() + FourBitLayout(type_, state.elements()).mean, sizeof(mean));
      state.nested_offset = static_cast<double>(mean);
    }
    const std::string text = quant_state_text(state);
    for (const auto& part : bitsandbytes_parts(state, tensor, text))
      add(entry.name + part.suffix, part.dtype, part.shape, entry.file);
    quantized_.emplace(entry.name, Quantized{entry.file, std::move(state)});
  }

  void write_file(const FileLayout& placed) const {
    const OpenFile file(placed.aside, O_RDWR);
    std::map<std::string, std::uint64_t> offsets;
    for (const PlacedTensor& tensor : placed.tensors) {
      offsets.emplace(tensor.parameter, tensor.offset);
      if (plain_.contains(tensor.parameter))
        copy_elements(files_, *files_.find(tensor.parameter), 0, tensor.elements, file, tensor);
    }
    for (const auto& [name, quantized] : quantized_) {
      if (placed.path.filename() != quantized.file) continue;
      const std::vector<std::byte> tensor = encode_four_bit(files_, *files_.find(name), type_);
      const std::string text = quant_state_text(quantized.state);
      for (const auto& part : bitsandbytes_parts(quantized.state, tensor, text))
        file.write_at(offsets.at(name + part.suffix), part.bytes);
    }
    file.sync();
  }

  const WeightFiles& files_;
  DType type_;
  WeightSource parts_;  // by their names in the files
  std::map<std::string, std::vector<std::int64_t>> shapes_;
  std::set<std::string> plain_;
  std::map<std::string, Quantized> quantized_;
  FolderLayout layout_;
};

/// As BitsAndBytesConfig.to_dict() of transformers.
Json quantization_config(DType type, const std::string& torch_dtype) {
  return {{"_load_in_4bit", true},
          {"_load_in_8bit", false},
          {"bnb_4bit_compute_dtype", torch_dtype},
          {"bnb_4bit_quant_storage", "uint8"},
          {"bnb_4bit_quant_type", quant_type_of(type)},
          {"bnb_4bit_use_double_quant", is_double_quantized(type)},
          {"llm_int8_enable_fp32_cpu_offload", false},
          {"llm_int8_has_fp16_weight", false},
          {"llm_int8_skip_modules", nullptr},
          {"llm_int8_threshold", 6.0},
          {"load_in_4bit", true},
          {"load_in_8bit", false},
          {"quant_method", "bitsandbytes"}};
}

}  // namespace

void export_four_bit_folder(const ModelSource& model, const fs::path& folder, DType type) {
  const std::string path = model.config_path.string();
  if (!model.adapter_folder.empty()) {
    fail("{}: is an adapter; expected a model: heddle export merges it into its base", model.adapter_folder.string());
  }
  if (model.is_bitsandbytes) fail("{}: is in four bits already; expected a model that is not", path);
  ModuleList modules;
  emit_model(modules, model.config);
  if (modules.is_transposed) {
    fail("{}: linear layers of {} lie transposed, and bitsandbytes turns them; expected another model", path,
         model.config.model_type);
  }
  const auto files = open_weights(model);
  const CompiledRun compiled = compile_evaluation(model.config, WeightRules(), DType::f32, {1, 1}, 1, 1);
  const WeightSource source = match_weights(*files, compiled.parameters, model.config);
  std::set<std::string> quantized;
  for (const auto& module : modules.linear) quantized.insert(module + ".weight");
  make_folder(folder);
  FourBitFolder(*files, source, quantized, type, folder).write();

  auto companions = model_files(model, "", std::nullopt);
  Json config = parse_json(model.config_text, path);
  config["quantization_config"] = quantization_config(type, model.config.torch_dtype);
  const auto written = std::find_if(companions.begin(), companions.end(),
                                    [](const KeptFile& file) { return file.name == "config.json"; });
  written->text = config.dump(2) + "\n";
  write_model_files(folder, companions);
}

}  // namespace heddle
