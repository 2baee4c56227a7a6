#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "models/config_parts.h"
#include "models/rope_frequencies.h"

// rope_theta with rope_scaling, as transformers 4 writes them, and rope_parameters, as 5 does.
namespace heddle {
namespace {

constexpr std::array<std::pair<std::string_view, RopeType>, 7> kTypes = {{
    {"default", RopeType::standard},
    {"linear", RopeType::linear},
    {"dynamic", RopeType::dynamic},
    {"yarn", RopeType::yarn},
    {"llama3", RopeType::llama3},
    {"longrope", RopeType::longrope},
    {"su", RopeType::longrope},  // its name in the first Phi-3 models
}};
constexpr std::array<std::string_view, 2> kLayerTypes = {"full_attention", "sliding_attention"};

/// What the root of the config says for the rope object.
struct RopeContext {
  const JsonReader& root;
  const ModelConfig& config;
  double theta;  // where the object has none
};

RopeType read_type_name(const JsonReader& object, std::string_view key, bool is_phi3) {
  const std::string name = object.text(key);
  // Phi-3's first models say "yarn" and mean longrope.
  if (is_phi3 && name == "yarn") return RopeType::longrope;
  std::array<std::string_view, kTypes.size()> known;
  for (std::size_t i = 0; i < kTypes.size(); ++i) {
    if (kTypes[i].first == name) return kTypes[i].second;
    known[i] = kTypes[i].first;
  }
  object.refuse_choice(key, known);
}

RopeType read_type(const JsonReader& object, bool is_phi3) {
  const bool has_type = object.has("type"), has_rope_type = object.has("rope_type");
  if (!has_type && !has_rope_type) {
    // An object without a type holds the base alone; anything else was meant to scale.
    for (const auto& [key, member] : object.value().get_ref<const Json::object_t&>()) {
      if (key != "rope_theta" && key != "partial_rotary_factor" && !member.is_null())
        object.refuse("rope_type", "a type of rope");
    }
    return RopeType::standard;
  }
  const std::string_view key = has_rope_type ? "rope_type" : "type";
  const RopeType type = read_type_name(object, key, is_phi3);
  if (has_type && has_rope_type && read_type_name(object, "type", is_phi3) != type) {
    object.refuse("type", "the same as rope_type");
  }
  if (is_phi3 && type != RopeType::standard && type != RopeType::longrope) {
    object.refuse(key, "default or longrope in a phi3 model");
  }
  return type;
}

/// The length before stretching: the root's value wins, as in transformers.
std::int64_t read_original_positions(const JsonReader& object, const RopeContext& context) {
  constexpr std::string_view kKey = "original_max_position_embeddings";
  if (context.root.has(kKey)) return context.root.integer(kKey, 2, kMaxPositions);
  if (context.config.model_type != "phi3") {
    return object.integer_or(kKey, context.config.max_positions, 2, kMaxPositions);
  }
  // transformers' Phi3Config has it at the root, with a default that overrides the object's.
  constexpr std::int64_t kPhi3Original = 4096;
  if (object.has(kKey) && object.integer(kKey, 2, kMaxPositions) != kPhi3Original) {
    object.refuse(kKey, "that key at the root of a phi3 model's config, which is 4096 where absent");
  }
  return kPhi3Original;
}

std::vector<double> read_pair_factors(const JsonReader& object, std::string_view key, std::int64_t pairs) {
  auto factors = object.positive_numbers(key);
  if (static_cast<std::int64_t>(factors.size()) != pairs) {
    object.refuse_because(
        key, fmt::format("has {} elements; expected {}, half the rotated dimensions of a head", factors.size(), pairs));
  }
  return factors;
}

void read_yarn(const JsonReader& object, const RopeContext& context, RopeConfig& rope) {
  if (rope.theta <= 1.0)
    object.refuse_because("rope_theta", fmt::format("is {}; expected above 1 for yarn", rope.theta));
  rope.factor = object.positive_number("factor");
  rope.original_max_position_embeddings = read_original_positions(object, context);
  rope.beta_fast = object.positive_number_or("beta_fast", 32.0);
  rope.beta_slow = object.positive_number_or("beta_slow", 1.0);
  rope.mscale = object.number_up_to_or("mscale", 0.0, 1e6);
  rope.mscale_all_dim = object.number_up_to_or("mscale_all_dim", 0.0, 1e6);
  rope.truncate = object.boolean_or("truncate", true);
}

void read_llama3(const JsonReader& object, const RopeContext& context, RopeConfig& rope) {
  constexpr std::string_view kOriginal = "original_max_position_embeddings";
  rope.factor = object.positive_number("factor");
  rope.low_freq_factor = object.positive_number("low_freq_factor");
  rope.high_freq_factor = object.positive_number("high_freq_factor");
  if (rope.high_freq_factor <= rope.low_freq_factor) {
    object.refuse("high_freq_factor", fmt::format("above low_freq_factor {}", rope.low_freq_factor));
  }
  if (!object.has(kOriginal) && !context.root.has(kOriginal)) object.refuse(kOriginal, "a number of positions");
  rope.original_max_position_embeddings = read_original_positions(object, context);
}

void read_longrope(const JsonReader& object, const RopeContext& context, RopeConfig& rope) {
  const std::int64_t pairs = rotary_dimensions(rope, context.config.head_dim) / 2;
  rope.short_factor = read_pair_factors(object, "short_factor", pairs);
  rope.long_factor = read_pair_factors(object, "long_factor", pairs);
  rope.original_max_position_embeddings = read_original_positions(object, context);
  const double ratio =
      static_cast<double>(context.config.max_positions) / static_cast<double>(rope.original_max_position_embeddings);
  rope.factor = object.positive_number_or("factor", ratio);
}

/// Checks the rotated dimensions; `object` is where partial_rotary_factor was looked for first.
void check_dimensions(const RopeContext& context, const RopeConfig& rope) {
  const std::int64_t head_dim = context.config.head_dim, dimensions = rotary_dimensions(rope, head_dim);
  if (rope.partial_rotary_factor != 1.0 && context.config.model_type != "phi3") {
    context.root.refuse_because(
        "partial_rotary_factor",
        fmt::format("is {}; expected 1 in a {} model", rope.partial_rotary_factor, context.config.model_type));
  }
  const std::int64_t least = rope.type == RopeType::dynamic ? 4 : 2;  // dynamic divides by dimensions - 2
  if (dimensions % 2 != 0 || dimensions < least) {
    context.root.refuse_because(
        "head_dim", fmt::format("is {}, of which rope rotates {}; expected an even number, {} or more", head_dim,
                                dimensions, least));
  }
}

RopeConfig read_object(const JsonReader& object, const RopeContext& context) {
  for (const std::string_view key : kLayerTypes) {
    if (object.has(key))
      object.refuse_because(key,
                            fmt::format("is there; a {} model has one rope for all layers", context.config.model_type));
  }
  const bool is_phi3 = context.config.model_type == "phi3";
  RopeConfig rope;
  rope.type = read_type(object, is_phi3);
  rope.theta = object.positive_number_or("rope_theta", context.theta);
  const JsonReader& partial = object.has("partial_rotary_factor") ? object : context.root;
  rope.partial_rotary_factor = partial.number_up_to_or("partial_rotary_factor", 1.0, 1.0);
  check_dimensions(context, rope);
  switch (rope.type) {
    case RopeType::none:
    case RopeType::standard: break;
    case RopeType::linear: rope.factor = object.positive_number("factor"); break;
    case RopeType::dynamic:
      rope.factor = object.positive_number("factor");
      rope.original_max_position_embeddings = context.config.max_positions;
      break;
    case RopeType::yarn: read_yarn(object, context, rope); break;
    case RopeType::llama3: read_llama3(object, context, rope); break;
    case RopeType::longrope: read_longrope(object, context, rope); break;
  }
  if ((rope.type == RopeType::yarn || rope.type == RopeType::longrope) && object.has("attention_factor")) {
    rope.attention_factor = object.positive_number("attention_factor");
  }
  return rope;
}

bool has_members(const JsonReader& reader, std::string_view key) {
  const Json* member = reader.find(key);
  return member != nullptr && !(member->is_object() && member->empty());
}

}  // namespace

void read_rope(const JsonReader& reader, double default_theta, ModelConfig& config) {
  static const Json kNothing = Json::object();
  const double theta = reader.positive_number_or("rope_theta", default_theta);
  const RopeContext context{reader, config, theta};
  const std::string_view key = has_members(reader, "rope_scaling") ? "rope_scaling" : "rope_parameters";
  config.rope =
      read_object(has_members(reader, key) ? reader.object(key) : JsonReader(kNothing, reader.file()), context);
}

void read_rope_by_layer_type(const JsonReader& reader, double default_theta, double default_local_theta,
                             ModelConfig& config) {
  static const Json kNothing = Json::object();
  const JsonReader nothing(kNothing, reader.file());
  const JsonReader layers = has_members(reader, "rope_parameters") ? reader.object("rope_parameters") : nothing;
  layers.allow_only(kLayerTypes);
  const auto layer = [&](std::string_view key) { return layers.has(key) ? layers.object(key) : nothing; };

  // rope_scaling is of the global layers alone.
  const bool has_scaling = has_members(reader, "rope_scaling");
  double theta = reader.positive_number_or("rope_theta", default_theta);
  if (has_scaling) theta = layer("full_attention").positive_number_or("rope_theta", theta);
  config.rope = read_object(has_scaling ? reader.object("rope_scaling") : layer("full_attention"),
                            RopeContext{reader, config, theta});
  const double local_theta = reader.positive_number_or("rope_local_base_freq", default_local_theta);
  config.local_rope = read_object(layer("sliding_attention"), RopeContext{reader, config, local_theta});
}

}  // namespace heddle
