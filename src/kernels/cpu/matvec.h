#pragma once

#include <span>

#include "kernels/cpu/matmul.h"

namespace heddle::cpu {

/// Products where A is one row and a column of B is adjacent in memory, as in the generation of a token: one pass over
/// all B, which nothing packs. The same bits as matmul, which calls it. Several have one A, and B of one type and
/// depth. False, and nothing is done, where the products have another form. A thread that nears its end brings its
/// share of the `coming` weights near, those of the product that is called next.
bool multiply_row(std::span<const MatrixProduct> products, const Scratch& scratch,
                  std::span<const TensorView> coming = {});

}  // namespace heddle::cpu
