#include "checkpoint/state_file.h"

namespace heddle {

SafetensorsFile open_state_file(const std::filesystem::path& folder, const CheckedFile& file,
                                const std::shared_ptr<FrameDecoder>& decoder) {
  if (!file.frames) return SafetensorsFile(folder / file.name);
  const auto content = std::make_shared<CompressedFile>(folder / file.name, *file.frames, decoder);
  return {content->path(), content->size(),
          [content](std::uint64_t offset, std::span<std::byte> target) { content->read(offset, target); }};
}

}  // namespace heddle
