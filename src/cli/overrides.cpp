#include "base/error.h"
#include "cli/commands.h"

namespace heddle::cli {

RunFile::Overrides parse_overrides(const std::vector<std::string>& words) {
  RunFile::Overrides overrides;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (!word.starts_with("--") || word.size() == 2) {
      throw UsageError(fmt::format("{} is not expected here; keys are overridden as --KEY VALUE", word));
    }
    if (const auto equals = word.find('='); equals != std::string::npos) {
      overrides.emplace_back(word.substr(2, equals - 2), word.substr(equals + 1));
    } else if (i + 1 < words.size()) {
      overrides.emplace_back(word.substr(2), words[++i]);
    } else {
      throw UsageError(fmt::format("{} has no value; keys are overridden as --KEY VALUE", word));
    }
  }
  return overrides;
}

}  // namespace heddle::cli
