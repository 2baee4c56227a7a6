#include "data/parquet_rows.h"

#include <dlfcn.h>

#include <utility>

#include "base/error.h"
#include "data/parquet/module.h"

namespace heddle {
namespace {

/// Found by the program's run path: in its own folder, and where it was built. Once loaded it stays, since types of it
/// may be in use.
OpenParquet* load_module(const std::string& path) {
  void* const module = ::dlopen("libheddle_parquet.so", RTLD_NOW | RTLD_LOCAL);
  void* const function = module != nullptr ? ::dlsym(module, kOpenParquet) : nullptr;
  if (function == nullptr) {
    fail(
        "{}: this program has no module for Parquet ({}); run scripts/setup --parquet and build again, or turn the "
        "file into .jsonl",
        path, ::dlerror());
  }
  return reinterpret_cast<OpenParquet*>(function);
}

}  // namespace

std::unique_ptr<DataStream::Decoder> open_parquet_rows(const FileReader& file,
                                                       std::function<bool(std::string_view column)> is_used) {
  OpenParquet* const open = load_module(file.path());
  const auto read = [&file](std::uint64_t offset, std::span<char> target) { file.read(offset, target); };
  return std::unique_ptr<DataStream::Decoder>(open({file.path(), file.size(), read, std::move(is_used)}));
}

}  // namespace heddle
