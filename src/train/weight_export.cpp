#include <fcntl.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "checkpoint/agreement.h"
#include "formats/open_file.h"
#include "train/local_state.h"
#include "train/parallel_convert.h"
#include "train/weight_copy.h"
#include "train/weight_layout.h"
#include "train/weights.h"

namespace heddle {
namespace {

constexpr std::int64_t kBuffered = std::int64_t{1} << 20;  // elements between memory and file: never a whole tensor

void write_owned(const OpenFile& file, const PlacedTensor& tensor, const LocalTensor& owned, const Executor& executor,
                 std::vector<std::byte>& held, std::vector<std::byte>& piece) {
  const DType from_type = owned.values.dtype;
  for (std::int64_t begin = owned.begin; begin < owned.end; begin += kBuffered) {
    const std::int64_t count = std::min(kBuffered, owned.end - begin);
    piece.resize(static_cast<std::size_t>(count) * dtype_bytes(tensor.dtype));
    held.resize(static_cast<std::size_t>(count) * dtype_bytes(from_type));
    const std::size_t first = static_cast<std::size_t>(begin - owned.begin) * dtype_bytes(from_type);
    executor.read(bytes_of(owned.values).subspan(first, held.size()), held);
    convert_parallel(held.data(), from_type, piece.data(), tensor.dtype, count);
    file.write_at(tensor.offset + static_cast<std::uint64_t>(begin) * dtype_bytes(tensor.dtype), piece);
  }
}

std::vector<std::int64_t> shape_of(const Parameters& parameters, const std::string& name) {
  const auto extents = parameters.find(name)->shape.extents();
  return {extents.begin(), extents.end()};
}

}  // namespace

std::uint64_t export_bytes(const WeightSource& source, const Parameters& parameters, std::optional<DType> dtype) {
  std::uint64_t bytes = 0;
  for (const auto& entry : source.entries) {
    bytes += static_cast<std::uint64_t>(parameters.find(entry.parameter)->shape.elements()) *
             dtype_bytes(dtype.value_or(entry.dtype));
  }
  return bytes;
}

void export_weights(const std::filesystem::path& folder, const WeightSource& source, const Parameters& parameters,
                    const Sharding& sharding, const Executor& executor, std::optional<DType> dtype,
                    const WeightFiles* base, Communicator& communicator) {
  const FolderLayout layout =
      lay_out(folder, source, dtype, [&](const std::string& name) { return shape_of(parameters, name); });
  std::map<std::string, std::string> stored_name;
  for (const auto& entry : source.entries) stored_name.emplace(entry.parameter, entry.name);
  const bool is_first = communicator.rank() == 0;
  try {
    agree(communicator, [&] {
      if (is_first) create_files(layout);
    });
    agree(communicator, [&] {
      std::vector<std::byte> held, piece;
      for (const auto& placed : layout.files) {
        const OpenFile file(placed.aside, O_RDWR);
        for (const auto& tensor : placed.tensors) {
          const Parameter& parameter = *parameters.find(tensor.parameter);
          if (parameter.is_trainable || base == nullptr) {
            write_owned(file, tensor, owned_master(executor, parameter, sharding), executor, held, piece);
          } else {
            const Partition partition = sharding.partition(tensor.elements);
            copy_elements(*base, *base->find(stored_name.at(tensor.parameter)), partition.begin(sharding.rank),
                          partition.end(sharding.rank), file, tensor);
          }
        }
        file.sync();
      }
    });
    agree(communicator, [&] {
      if (is_first) commit_files(layout);
    });
  } catch (...) {
    if (is_first) give_up_files(layout);
    throw;
  }
}

}  // namespace heddle
