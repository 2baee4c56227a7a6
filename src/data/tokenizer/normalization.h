#pragma once

#include <string>
#include <string_view>

namespace heddle::unicode {

enum class Form { nfc, nfd, nfkc, nfkd };

/// Unicode normalization (UAX #15) as Hugging Face's `tokenizers` does it, whose tables are older than utf8proc's:
/// characters newer than they are stay as they are. Linear but for sorting runs of marks.
std::string normalize(std::string_view text, Form form);
/// True if every character is such that normalizing cannot change any text made of them: one quick scan.
bool is_surely_normalized(std::string_view text, Form form);

}  // namespace heddle::unicode
