#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "formats/gguf.h"
#include "quantize/decode.h"

namespace {

/// A file in memory with these bytes.
std::filesystem::path file_with(const std::string& bytes) {
  static const int descriptor = ::memfd_create("input", 0);
  if (descriptor < 0 || ::ftruncate(descriptor, 0) != 0) std::abort();
  if (::pwrite(descriptor, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) std::abort();
  return "/proc/self/fd/" + std::to_string(descriptor);
}

/// Every byte that the head promises is there, belongs to one tensor, and decodes.
void read_all(const heddle::GgufFile& file) {
  std::uint64_t end = 0;
  std::set<std::string> names;
  for (const auto& tensor : file.tensors()) {
    std::int64_t elements = 1;
    for (const std::int64_t extent : tensor.shape) elements *= extent;
    if (tensor.begin < end || tensor.begin % file.alignment() != 0) std::abort();
    if (static_cast<std::int64_t>(tensor.bytes()) != heddle::storage_bytes(tensor.dtype, elements)) std::abort();
    if (!names.insert(tensor.name).second || file.find(tensor.name) != &tensor) std::abort();
    end = tensor.end;
    std::vector<std::byte> bytes(tensor.bytes());
    file.read(tensor, 0, bytes);
    if (heddle::is_quantized(tensor.dtype) && heddle::is_decodable(tensor.dtype)) {
      std::vector<float> values(static_cast<std::size_t>(elements));
      heddle::decode(tensor.dtype, bytes.data(), elements, 0, elements, values.data());
    }
  }
  for (const auto& [key, value] : file.metadata().entries()) {
    if (file.metadata().find(key) != &value) std::abort();
    if (heddle::gguf_excerpt(value).find('\n') != std::string::npos) std::abort();
  }
}

/// What the writer makes of the same metadata reads back the same, but for numbers that it narrows.
void write_again(const heddle::GgufFile& file) {
  if (file.metadata().has("general.alignment")) return;
  const auto path = std::filesystem::temp_directory_path() / ("fuzz_gguf_" + std::to_string(::getpid()));
  heddle::GgufWriter writer(path, file.metadata(), {});
  writer.finish();
  const heddle::GgufFile again(path);
  std::filesystem::remove(path);
  const auto& before = file.metadata().entries();
  const auto& after = again.metadata().entries();
  if (before.size() != after.size()) std::abort();
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (before[i].first != after[i].first || before[i].second.index() != after[i].second.index()) std::abort();
  }
}

}  // namespace

// The first byte chooses: 1 in 64 files is also written again, which takes a file on the disk.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  try {
    const heddle::GgufFile file(file_with(std::string(reinterpret_cast<const char*>(data) + 1, size - 1)));
    read_all(file);
    if (data[0] % 64 == 1) write_again(file);
  } catch (const heddle::Error& error) {
    if (std::string(error.what()).find('\n') != std::string::npos) std::abort();
    if (std::string(error.what()).starts_with("internal:")) std::abort();
  }
  return 0;
}
