#pragma once

#include <span>
#include <string>

#include "formats/json.h"
#include "train/compile.h"

namespace heddle {

/// The document of plan.json and memory.json, from the bills of each rank. Tiers in which nothing lies are left out.
Json bill_document(const Parameters& parameters, std::span<const TierBills> ranks);
/// As planned: all ranks alike.
Json plan_document(const CompiledRun& compiled);
/// The bill as a person reads it: a line per class.
std::string bill_text(const CompiledRun& compiled);
/// Every instruction with its buffers, shapes, bytes and lifetimes.
std::string program_text(const CompiledRun& compiled);

}  // namespace heddle
