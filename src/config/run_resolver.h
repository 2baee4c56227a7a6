#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/run_keys.h"

namespace heddle {

/// A run file read, overridden and checked, but for the values of sound keys that this version does not have
/// (find_unsupported).
struct ResolvedRun {
  RunConfig config;
  RunSettings settings;
  std::vector<std::string> notes, warnings;
};

/// `root` is the run file's map, named `name` in errors; `launcher_ranks` as RunFile::load has it. Throws Error.
ResolvedRun resolve_run(SourceNode root, const std::string& name, const RunFile::Overrides& overrides,
                        std::optional<int> launcher_ranks = std::nullopt);

}  // namespace heddle
