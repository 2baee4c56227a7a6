#pragma once

#include <cstdint>
#include <span>

namespace heddle::cpu {

/// values[i] = spread times draw `first` + i of Random(key, stream).normal(), on vectors and from any place on. Made of
/// operations that IEEE 754 rounds correctly, one at a time: the bits are the same on every instruction set and with
/// every C library. In f64 they are within 4 units in the last place of the formula, so as f32 nearly always those
/// of Random. On the calling thread.
void draw_normal(std::uint64_t key, std::uint64_t stream, std::int64_t first, double spread, std::span<float> values);

}  // namespace heddle::cpu
