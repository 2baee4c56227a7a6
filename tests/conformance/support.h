#pragma once

#include <string>

namespace heddle::conformance {

/// Operation x precision x backend as a table of text: "yes", "no" (no kernel), "-" (the precision does not apply).
std::string support_table();

/// A digest of all that each operation computes, a line for each in each precision, for comparison with another
/// machine's: they are the same on all processors that fuse multiply-adds, but for bf16 with Arm's instructions.
std::string digest_table();

/// Time of each operation at a size that training has, and what part of the machine's measured ceiling (memory or fused
/// multiply-add, whichever is nearer) it reaches, with `threads`; printed as it goes. `filter` is part of a name.
void print_performance(int threads, const std::string& filter);

}  // namespace heddle::conformance
