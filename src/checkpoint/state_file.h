#pragma once

#include <filesystem>
#include <memory>

#include "checkpoint/checked_file.h"
#include "checkpoint/frames.h"
#include "formats/safetensors.h"

namespace heddle {

/// A state file of the checkpoint in `folder`, compressed or not. Throws Error naming it.
SafetensorsFile open_state_file(const std::filesystem::path& folder, const CheckedFile& file,
                                const std::shared_ptr<FrameDecoder>& decoder);

}  // namespace heddle
