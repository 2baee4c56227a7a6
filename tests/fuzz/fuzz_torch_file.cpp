#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "formats/deepspeed_state.h"
#include "formats/torch_file.h"

namespace {

/// A file in memory with these bytes.
std::filesystem::path file_with(const std::string& bytes) {
  static const int descriptor = ::memfd_create("input", 0);
  if (descriptor < 0 || ::ftruncate(descriptor, 0) != 0) std::abort();
  if (::pwrite(descriptor, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) std::abort();
  return "/proc/self/fd/" + std::to_string(descriptor);
}

/// Every element that a tensor promises is there, and a contiguous one reads the same in one piece and in two.
void read_all(const heddle::TorchFile& file) {
  for (const auto& tensor : file.tensors()) {
    const std::size_t each = heddle::dtype_bytes(tensor.dtype);
    const auto elements = static_cast<std::size_t>(tensor.elements());
    std::vector<std::byte> whole;
    file.read(tensor, [&](std::span<const std::byte> bytes) { whole.insert(whole.end(), bytes.begin(), bytes.end()); });
    if (whole.size() != each * elements) std::abort();
    if (!tensor.is_contiguous() || elements == 0) continue;
    std::vector<std::byte> parts(whole.size());
    const std::size_t half = elements / 2;
    file.read_contiguous(tensor, 0, std::span(parts).first(half * each));
    file.read_contiguous(tensor, static_cast<std::int64_t>(half), std::span(parts).subspan(half * each));
    if (whole != parts) std::abort();
  }
  file.verify();
}

template <typename Open>
void expect_sound_errors(Open open) {
  try {
    open();
  } catch (const heddle::Error& error) {
    if (std::string(error.what()).find('\n') != std::string::npos) std::abort();
    if (std::string(error.what()).starts_with("internal:")) std::abort();
  }
}

}  // namespace

// The first byte chooses how the file is read: as weights, or as one of DeepSpeed's states.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto path = file_with(std::string(reinterpret_cast<const char*>(data) + 1, size - 1));
  switch (data[0] % 3) {
    case 0: expect_sound_errors([&] { read_all(heddle::TorchFile(path)); }); break;
    case 1: expect_sound_errors([&] { const heddle::DeepSpeedModelState state(path); }); break;
    default: expect_sound_errors([&] { const heddle::DeepSpeedOptimizerState state(path); }); break;
  }
  return 0;
}
