#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/file_reader.h"
#include "formats/gguf_metadata.h"
#include "formats/gguf_types.h"
#include "formats/safetensors.h"

namespace heddle {

/// What lies before the tensors of a GGUF file.
struct GgufHead {
  explicit GgufHead(const std::string& file) : metadata(file) {}

  std::uint32_t version = kGgufVersion;
  std::uint64_t alignment = kGgufDefaultAlignment;
  GgufMetadata metadata;
  std::vector<StoredTensor> tensors;  // in the order of their bytes
  std::uint64_t data_begin = 0;       // in the file
};

/// Reads and checks it all, as GgufFile promises.
GgufHead read_gguf_head(const FileReader& file);

}  // namespace heddle
