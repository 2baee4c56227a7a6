#pragma once

#include <cstddef>
#include <span>

#include "base/dtype.h"
#include "comm/communicator.h"

namespace heddle {

/// target[k] = (base ? base[k] : nothing) + sources[0][k] + sources[1][k] + ..., strictly from left to right, or the
/// maximum in place of the sum. All are runs of `bytes` bytes, of any alignment. The target may be the base, or else
/// one of the sources; other overlaps are not allowed. At least one source. The one place where contributions of ranks
/// are added up, so that all transports give the same bits.
void fold(DType dtype, Reduction reduction, std::byte* target, std::span<const std::byte* const> sources,
          const std::byte* base, std::size_t bytes);

/// Whether fold knows the type: f32, f64, i32, i64.
bool can_fold(DType dtype);

}  // namespace heddle
