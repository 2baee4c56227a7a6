#pragma once

#include <string>
#include <string_view>

#include "quantize/bitsandbytes.h"

namespace heddle {

/// Reads the text of NAME.quant_state.bitsandbytes__nf4, the opposite of quant_state_text(). `name` stands in errors.
/// What this engine does not have (fp4, other block sizes) is read all the same; bitsandbytes_sources() refuses it.
BitsandbytesState parse_quant_state(std::string_view text, const std::string& name);

}  // namespace heddle
