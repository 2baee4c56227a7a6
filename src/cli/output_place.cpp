#include "cli/output_place.h"

#include <filesystem>
#include <system_error>

#include "base/error.h"

namespace heddle::cli {

void check_output_place(const std::string& model, const std::string& out, bool is_file) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::equivalent(model, out, error))
    fail("{}: is the model itself, which would be lost; expected another place", out);
  if (is_file && fs::is_directory(out, error)) fail("{}: is a folder; expected a name for a GGUF file", out);
  if (!is_file && fs::path(out).extension() == ".gguf")
    fail("{}: is the name of a GGUF file, but a folder is to be written; expected a folder, or a type of GGUF", out);
}

}  // namespace heddle::cli
