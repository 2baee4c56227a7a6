#pragma once

#include <array>

namespace heddle {

/// What 8-bit codes stand for in the dynamic map of Dettmers 2015 (arXiv:1511.04561), as bitsandbytes'
/// create_dynamic_map makes it: 256 values in ascending order from -1 (signed) or 0 to 1, finer in relation to their
/// size the larger they are, over seven powers of ten.
std::array<float, 256> dynamic_map_values(bool is_signed);

}  // namespace heddle
