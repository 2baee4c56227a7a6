#pragma once

#include <string>

namespace heddle::cli {

/// Before anything is written: throws Error where OUT is the model itself, which would be lost, or where a folder would
/// be written for a file (`is_file`: a GGUF file is written), or a file for a folder.
void check_output_place(const std::string& model, const std::string& out, bool is_file);

}  // namespace heddle::cli
