// Rows past..past+T-1 of cache A[S,K,D] become k A[T,K,D]; the rest stays.
#include <cstring>

#include "base/error.h"
#include "kernels/cpu/kernels.h"

namespace heddle::cpu {

void kv_append(const KernelCall& call) {
  const TensorView &k = call.in[0], &cache = call.out[0];
  HEDDLE_CHECK(k.dtype == cache.dtype);
  HEDDLE_CHECK(call.scalars.past + k.shape[0] <= cache.shape[0]);
  const auto row_bytes = static_cast<std::size_t>(k.shape[1] * k.shape[2]) * dtype_bytes(k.dtype);
  std::memcpy(cache.as<std::byte>() + static_cast<std::size_t>(call.scalars.past) * row_bytes, k.data,
              static_cast<std::size_t>(k.shape[0]) * row_bytes);
}

}  // namespace heddle::cpu
