// Any text as a template, over a fixed conversation: a text, or one Error, in bounded time and memory; and the same
// again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "data/jinja/template.h"

namespace {

using namespace heddle;

std::string render(const jinja::Template& parsed) {
  static const Json kMessages = Json::parse(
      R"([{"role":"user","content":" Hi <b> äΣ\n"},{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":{"a":1.5,"b":[null,true]}}}]}])");
  static const Json kNumbers = Json::parse("[3,1,-2,0.5,3]"), kText = "e\u0301 日本, a-b";
  const std::vector<jinja::Passed> passed = {{"messages", &kMessages}, {"n", &kNumbers}, {"t", &kText}};
  jinja::Limits limits;
  limits.steps = 200'000;
  limits.memory = std::size_t{16} << 20;
  limits.output = std::size_t{1} << 20;
  limits.depth = 400;  // frames are large with the sanitizers
  try {
    return parsed.render(passed, limits).text;
  } catch (const Error& error) {
    return std::string("error: ") + error.what();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(bytes), size);
  try {
    const jinja::Template parsed(source, "t");
    if (render(parsed) != render(parsed) && source.find("strftime_now") == std::string_view::npos) std::abort();
  } catch (const Error&) {
  }
  return 0;
}
