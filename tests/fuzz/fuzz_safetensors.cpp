#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "formats/safetensors.h"
#include "formats/tensor_values.h"

namespace {

/// A file in memory with these bytes.
std::filesystem::path file_with(const std::string& bytes) {
  static const int descriptor = ::memfd_create("input", 0);
  if (descriptor < 0 || ::ftruncate(descriptor, 0) != 0) std::abort();
  if (::pwrite(descriptor, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) std::abort();
  return "/proc/self/fd/" + std::to_string(descriptor);
}

/// Every byte that the header promises is there, once, and read the same in one piece and in two.
void read_all(const heddle::SafetensorsFile& file) {
  std::uint64_t total = 0;
  for (const auto& tensor : file.tensors()) {
    std::vector<std::byte> whole(tensor.bytes()), parts(tensor.bytes());
    file.read(tensor, 0, whole);
    const std::size_t half = parts.size() / 2;
    file.read(tensor, 0, std::span(parts).first(half));
    file.read(tensor, half, std::span(parts).subspan(half));
    if (whole != parts) std::abort();
    std::uint64_t bits = heddle::dtype_bits(tensor.dtype);
    for (const std::int64_t extent : tensor.shape) bits *= static_cast<std::uint64_t>(extent);
    if (bits != 8 * tensor.bytes() || tensor.begin != total || file.find(tensor.name) != &tensor) std::abort();
    if (heddle::has_values(tensor.dtype)) {
      heddle::Json values = heddle::Json::array();
      heddle::append_values(tensor.dtype, whole, values);
      if (values.size() * heddle::dtype_bytes(tensor.dtype) != tensor.bytes()) std::abort();
    }
    total = tensor.end;
  }
}

}  // namespace

// The first byte chooses: an even one takes the rest as the file; an odd one as header and data, with the right header
// length set before them (found by the last closing brace), which a fuzzer hardly finds by itself.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 1) {
    const std::uint64_t length = bytes.find_last_of('}') + 1;  // 0 without one
    std::string prefix;
    for (unsigned shift = 0; shift < 64; shift += 8) prefix += static_cast<char>((length >> shift) & 0xff);
    bytes.insert(0, prefix);
  }
  try {
    read_all(heddle::SafetensorsFile(file_with(bytes)));
  } catch (const heddle::Error& error) {
    if (std::string(error.what()).find('\n') != std::string::npos) std::abort();
  }
  return 0;
}
