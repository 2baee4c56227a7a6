#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "formats/json.h"

// Any text is parsed or refused with a one-line Error; what is parsed is the same after writing and reading it again.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace heddle;
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const NonFinite mode : {NonFinite::refuse, NonFinite::as_text}) {
    try {
      const Json value = parse_json(text, "input", 50, mode);
      if (parse_json(value.dump(), "again", 50) != value) std::abort();
      json_excerpt(value);
    } catch (const Error& error) {
      if (std::string(error.what()).find('\n') != std::string::npos) std::abort();
    }
  }
  return 0;
}
