#pragma once

#include <string>

#include "formats/json.h"
#include "train/compile.h"

namespace heddle {

/// The document of plan.json and memory.json.
Json bill_document(const Parameters& parameters, const Bill& device);
/// The bill as a person reads it: a line per class.
std::string bill_text(const CompiledRun& compiled);
/// Activations and peak of a model by length of one row and by recomputation, with the other settings of `run`.
std::string lengths_text(const RunConfig& run, const ModelConfig& model);
/// Every instruction with its buffers, shapes, bytes and lifetimes.
std::string program_text(const CompiledRun& compiled);

}  // namespace heddle
