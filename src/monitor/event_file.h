#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "formats/append_file.h"

namespace heddle {

/// CRC-32C (Castagnoli), RFC 3720 appendix B.4.
std::uint32_t crc32c(std::string_view bytes);

/// A value of a TensorBoard event.
struct Scalar {
  std::string_view tag;
  double value;
};

/// A TensorBoard event file: TFRecords (length, masked CRC, data, masked CRC) of tensorflow.Event messages.
/// https://www.tensorflow.org/tutorials/load_data/tfrecord, tensorflow/core/util/event.proto
class EventFile {
 public:
  /// Makes a new file in `folder`. With first_step > 1 TensorBoard is told to forget what earlier files of the folder
  /// hold from that step on.
  EventFile(const std::filesystem::path& folder, std::int64_t first_step);
  /// One event; values that are not finite are left out.
  void append(std::int64_t step, std::span<const Scalar> scalars);

 private:
  void append_record(std::string_view event);
  AppendFile file_;
};

}  // namespace heddle
