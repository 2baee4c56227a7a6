#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <utility>

#include "formats/file_reader.h"

namespace heddle {

enum class Compression : std::int32_t { none, gzip, zstd };

/// By the file's last extension: .gz, .zst.
Compression compression_of(const std::filesystem::path& path);

/// The bytes of a data file from first to last, decompressed as they are read: gzip (RFC 1952) and Zstandard (RFC 8878)
/// with any number of members or frames. Memory is bounded by the decoder's window.
class DataStream {
 public:
  class Decoder {
   public:
    Decoder() = default;
    virtual ~Decoder() = default;
    Decoder(const Decoder&) = delete;
    Decoder& operator=(const Decoder&) = delete;
    /// As DataStream's.
    virtual std::size_t read(std::span<char> target) = 0;
  };

  /// `file` must outlive it.
  DataStream(const FileReader& file, Compression compression);
  explicit DataStream(std::unique_ptr<Decoder> decoder) : decoder_(std::move(decoder)) {}
  DataStream(const DataStream&) = delete;
  DataStream& operator=(const DataStream&) = delete;

  /// Fills the target and returns the number of bytes: fewer only at the end. Throws Error "PATH: ..." where compressed
  /// data is damaged or ends early.
  std::size_t read(std::span<char> target) { return decoder_->read(target); }

 private:
  std::unique_ptr<Decoder> decoder_;
};

}  // namespace heddle
