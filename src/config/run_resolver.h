#pragma once

#include <string>
#include <vector>

#include "config/run_keys.h"

namespace heddle {

/// A run file read, overridden and checked, but for what this version does not have (check_supported,
/// check_deepspeed_supported).
struct ResolvedRun {
  RunConfig config;
  RunSettings settings;
  std::vector<std::string> warnings;
};

/// `root` is the run file's map, named `name` in errors. Throws Error.
ResolvedRun resolve_run(SourceNode root, const std::string& name, const RunFile::Overrides& overrides);

}  // namespace heddle
