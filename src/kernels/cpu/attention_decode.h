#pragma once

#include "ops/kernel.h"

namespace heddle::cpu {

/// Attention of one query row (T = 1) against a key-value cache; operands as attention.
void attention_decode(const KernelCall& call);

}  // namespace heddle::cpu
