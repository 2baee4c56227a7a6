#include "formats/gguf.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "formats/gguf_head.h"
#include "formats/json.h"

namespace heddle {

struct GgufFile::Impl {
  explicit Impl(const std::filesystem::path& path) : file(path), head(read_gguf_head(file)) {
    index_of.reserve(head.tensors.size());
    for (std::size_t i = 0; i < head.tensors.size(); ++i) index_of.emplace(head.tensors[i].name, i);
  }

  FileReader file;
  GgufHead head;
  std::unordered_map<std::string_view, std::size_t> index_of;  // name -> index in head.tensors
};

GgufFile::GgufFile(const std::filesystem::path& path) : impl_(std::make_unique<Impl>(path)) {}
GgufFile::~GgufFile() = default;
GgufFile::GgufFile(GgufFile&&) noexcept = default;
GgufFile& GgufFile::operator=(GgufFile&&) noexcept = default;

const std::string& GgufFile::path() const { return impl_->file.path(); }
std::uint32_t GgufFile::version() const { return impl_->head.version; }
std::uint64_t GgufFile::alignment() const { return impl_->head.alignment; }
const GgufMetadata& GgufFile::metadata() const { return impl_->head.metadata; }
std::span<const StoredTensor> GgufFile::tensors() const { return impl_->head.tensors; }

const StoredTensor* GgufFile::find(std::string_view name) const {
  const auto found = impl_->index_of.find(name);
  return found == impl_->index_of.end() ? nullptr : &impl_->head.tensors[found->second];
}

void GgufFile::read(const StoredTensor& tensor, std::uint64_t offset, std::span<std::byte> target) const {
  HEDDLE_CHECK(tensor.begin <= tensor.end && tensor.end <= impl_->file.size() - impl_->head.data_begin);
  HEDDLE_CHECK(offset <= tensor.bytes() && target.size() <= tensor.bytes() - offset);
  impl_->file.read(impl_->head.data_begin + tensor.begin + offset, target);
}

}  // namespace heddle
