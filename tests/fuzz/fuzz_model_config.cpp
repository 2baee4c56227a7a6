#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "models/model_config.h"
#include "models/rope_frequencies.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void check_rope(const heddle::RopeConfig& rope, const heddle::ModelConfig& c) {
  if (rope.type == heddle::RopeType::none) return;
  for (const std::int64_t length : {std::int64_t{1}, c.max_positions + 1}) {
    const auto frequencies = heddle::rope_frequencies(rope, c.head_dim, c.max_positions, length);
    require(static_cast<std::int64_t>(frequencies.inv_freq.size()) * 2 == heddle::rotary_dimensions(rope, c.head_dim));
  }
}

/// What ModelConfig promises to the families.
void check(const heddle::ModelConfig& c) {
  require(c.vocab_size > 0 && c.hidden_size > 0 && c.intermediate_size > 0 && c.num_layers > 0 && c.max_positions > 0);
  require(c.num_heads > 0 && c.num_kv_heads > 0 && c.head_dim > 0 && c.num_heads % c.num_kv_heads == 0);
  require(c.norm_epsilon > 0 && c.sliding_window >= 0);
  const auto layers = static_cast<std::size_t>(c.num_layers);
  require(c.layer_is_sliding.empty() || (c.layer_is_sliding.size() == layers && c.sliding_window > 0));
  require(c.layer_has_rope.empty() || c.layer_has_rope.size() == layers);
  std::int64_t bytes = 0;  // a bound for the parameters of the whole model, 16 bytes each
  const std::int64_t layer = 4 * c.num_heads * c.head_dim * c.hidden_size + 3 * c.hidden_size * c.intermediate_size;
  require(!__builtin_mul_overflow(layer, c.num_layers, &bytes));
  require(!__builtin_add_overflow(bytes, (2 * c.vocab_size + c.max_positions) * c.hidden_size, &bytes));
  require(!__builtin_mul_overflow(bytes, std::int64_t{16}, &bytes));
  check_rope(c.rope, c);
  if (c.local_rope) check_rope(*c.local_rope, c);
}

}  // namespace

// Any text is refused with a one-line Error, or gives a config that keeps its promises.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    check(heddle::parse_model_config(std::string(reinterpret_cast<const char*>(data), size), "config.json"));
  } catch (const heddle::Error& error) {
    const std::string text = error.what();
    require(text.find('\n') == std::string::npos && text.starts_with("config.json: "));
  }
  return 0;
}
