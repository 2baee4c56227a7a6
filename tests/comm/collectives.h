#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace heddle::collectives {

/// What came out of one check on one rank: its name and a digest of the bits. Transports are compared by these.
struct Outcome {
  std::string name;
  std::uint64_t digest;
  bool operator==(const Outcome&) const = default;
};

/// Makes every collective call in many sizes and compares each result with a plain formula, bit for bit; throws Error
/// at the first difference. To be called on all ranks, on any transport.
std::vector<Outcome> check_all(Communicator& communicator);

/// Value k of rank r in stream s: of widely different magnitudes, so that the order of a sum shows in its bits.
template <typename T>
T value(int stream, int rank, std::size_t index);

}  // namespace heddle::collectives
