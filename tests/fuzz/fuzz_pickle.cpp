#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "formats/pickle.h"

namespace {

/// Every object refers to others that are there, and has the items that its kind promises.
void check(const heddle::Pickle& pickle, std::size_t bytes) {
  using Kind = heddle::Pickle::Kind;
  if (pickle.size() > bytes) std::abort();
  for (const auto& object : pickle.objects()) {
    for (const int item : object.items) {
      if (item < 0 || static_cast<std::size_t>(item) >= pickle.objects().size()) std::abort();
    }
    const std::size_t count = object.items.size();
    if (object.kind == Kind::dict && count % 2 != 0) std::abort();
    if (object.kind == Kind::persistent && count != 1) std::abort();
    if (object.kind == Kind::call || object.kind == Kind::record) {
      if (count != 2 && count != 3) std::abort();
      if (pickle.at(object.items[0]).kind != Kind::global || pickle.at(object.items[1]).kind != Kind::tuple)
        std::abort();
    }
    pickle.find(object, "key");
  }
  pickle.find(pickle.root(), "key");
}

}  // namespace

// The first byte chooses: an even one allows all names, an odd one those of ordered dictionaries.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const bool allows_all = data[0] % 2 == 0;
  try {
    check(heddle::Pickle(text, "file.bin",
                         [&](std::string_view name) { return allows_all || name == "collections OrderedDict"; }),
          text.size());
  } catch (const heddle::Error& error) {
    if (std::string(error.what()).find('\n') != std::string::npos) std::abort();
    if (std::string(error.what()).starts_with("internal:")) std::abort();
  }
  return 0;
}
