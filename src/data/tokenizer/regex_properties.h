#pragma once

#include <string>
#include <string_view>

namespace heddle {

/// Gives Oniguruma the general categories of Unicode 16, which Hugging Face's library is built with; Debian's has those
/// of Unicode 14. Known under their short names (\p{L}, \p{Lu}, ...) and \p{Word} only: [[:alpha:]], scripts and long
/// names keep the engine's own tables. To be called once, after onig_initialize.
void define_regex_properties();

/// The pattern with \w, \d and [:punct:] spelled as those properties.
std::string use_regex_properties(std::string_view pattern);

}  // namespace heddle
