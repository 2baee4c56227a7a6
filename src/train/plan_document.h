#pragma once

#include <string>

#include "formats/json.h"
#include "train/compile.h"

namespace heddle {

/// The document of plan.json and memory.json.
Json bill_document(const Parameters& parameters, const Bill& device);
/// The bill as a person reads it: a line per class.
std::string bill_text(const CompiledRun& compiled);
/// Every instruction with its buffers, shapes, bytes and lifetimes.
std::string program_text(const CompiledRun& compiled);

}  // namespace heddle
