#include "train/quantized_base.h"

#include <span>
#include <string>
#include <vector>

#include "formats/files.h"
#include "formats/json.h"
#include "quantize/decode.h"
#include "quantize/four_bit.h"
#include "train/decoded_tensor.h"
#include "train/weights.h"

namespace heddle {

std::optional<DType> four_bits_of_run(const std::filesystem::path& adapter_folder) {
  const auto path = adapter_folder / "effective_config.json";
  if (!std::filesystem::exists(path)) return std::nullopt;
  const Json run = parse_json(read_text_file(path), path.string());
  const auto value_of = [&](const char* key) {
    const auto found = run.find(key);
    return found != run.end() && found->is_object() ? found->value("value", Json()) : Json();
  };
  if (value_of("load_in_4bit") != true) return std::nullopt;
  return four_bit_type(value_of("bnb_4bit_quant_type") == "fp4" ? "fp4" : "nf4",
                       value_of("bnb_4bit_use_double_quant") == true);
}

double four_bit_error(const WeightFiles& files, const StoredTensor& stored, DType type) {
  const std::vector<std::byte> encoded = encode_four_bit(files, stored, type);
  DecodedTensor exact(files, stored);
  std::vector<float> coded;
  double sum = 0;
  exact.for_each_piece(0, exact.elements(), [&](std::int64_t begin, std::span<const float> values) {
    coded.resize(values.size());
    decode(type, encoded.data(), exact.elements(), begin, static_cast<std::int64_t>(values.size()), coded.data());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double error = static_cast<double>(coded[i]) - static_cast<double>(values[i]);
      sum += error * error;
    }
  });
  return sum;
}

}  // namespace heddle
