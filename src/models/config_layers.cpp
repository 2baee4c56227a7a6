#include <algorithm>
#include <utility>

#include "base/error.h"
#include "models/config_parts.h"

// Which layers attend to a window only.
namespace heddle {
namespace {

/// layer_types as flags (true: sliding_attention), or `absent` without the key.
std::vector<bool> read_layer_types(const JsonReader& reader, std::int64_t num_layers, std::vector<bool> absent) {
  if (!reader.has("layer_types")) return absent;
  const auto names = reader.texts("layer_types");
  if (static_cast<std::int64_t>(names.size()) != num_layers) {
    reader.refuse_because("layer_types",
                          fmt::format("has {} elements; expected one for each of {} layers", names.size(), num_layers));
  }
  std::vector<bool> is_sliding;
  for (const std::string& name : names) {
    if (name != "sliding_attention" && name != "full_attention") {
      reader.refuse_because("layer_types", fmt::format("holds {}; expected full_attention or sliding_attention",
                                                       json_excerpt(Json(name))));
    }
    is_sliding.push_back(name == "sliding_attention");
  }
  return is_sliding;
}

}  // namespace

std::int64_t read_sliding_window(const JsonReader& reader, std::int64_t absent) {
  return reader.is_null("sliding_window") ? 0 : reader.integer_or("sliding_window", absent, 1, kMaxPositions);
}

void read_sliding_layers(const JsonReader& reader, std::int64_t window, std::vector<bool> is_sliding,
                         ModelConfig& config) {
  is_sliding = read_layer_types(reader, config.num_layers, std::move(is_sliding));
  const auto count = std::count(is_sliding.begin(), is_sliding.end(), true);
  if (count > 0 && window == 0) {
    reader.refuse_because("sliding_window", fmt::format("is off, but {} layers are sliding_attention", count));
  }
  if (count == 0) return;
  config.sliding_window = window;
  config.layer_is_sliding = std::move(is_sliding);
}

void read_uniform_layers(const JsonReader& reader, std::int64_t window, ModelConfig& config) {
  const auto expected = std::vector<bool>(static_cast<std::size_t>(config.num_layers), window > 0);
  if (read_layer_types(reader, config.num_layers, expected) != expected) {
    reader.refuse("layer_types", fmt::format("{} in all layers of a {} model with sliding_window {}",
                                             window > 0 ? "sliding_attention" : "full_attention", config.model_type,
                                             window > 0 ? std::to_string(window) : "off"));
  }
  config.sliding_window = window;
}

}  // namespace heddle
