#pragma once

#include <string>

namespace heddle::conformance {

/// Operation x precision x backend as a table of text: "yes", "no" (no kernel), "-" (the precision does not apply).
std::string support_table();

/// Time of each operation at a size that training has, and what part of the machine's measured ceiling (memory or fused
/// multiply-add, whichever is nearer) it reaches, with `threads`; printed as it goes. `filter` is part of a name.
void print_performance(int threads, const std::string& filter);

}  // namespace heddle::conformance
