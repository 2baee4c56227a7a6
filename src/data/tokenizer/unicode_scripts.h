#pragma once

namespace heddle::unicode {

/// Which script a character has for the pre-tokenizer UnicodeScripts, as a number; 0: none, as of a blank and of code
/// points that the table does not know. Han, Hiragana and Katakana are one. The .cpp is made by
/// scripts/make_unicode_scripts.py from Hugging Face's library.
int script(char32_t code);

}  // namespace heddle::unicode
