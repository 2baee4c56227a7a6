#pragma once

#include "kernels/cpu/matmul.h"

namespace heddle::cpu {

/// The product where A is one row and a column of B is adjacent in memory, as in the generation of a token: one pass
/// over B, which nothing packs. The same bits as matmul, which calls it. False, and nothing is done, where the product
/// has another form.
bool multiply_row(const MatrixProduct& product, const Scratch& scratch);

}  // namespace heddle::cpu
