#include "models/gguf_weights.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "base/error.h"
#include "models/gguf_config.h"

namespace heddle {
namespace {

bool is_plain(DType type) { return type == DType::f32 || type == DType::f16 || type == DType::bf16; }

/// The part of [begin, end) that lies in [first, last), as {begin, end}; begin >= end where there is none.
std::pair<std::uint64_t, std::uint64_t> overlap(std::uint64_t begin, std::uint64_t end, std::uint64_t first,
                                                std::uint64_t last) {
  return {std::max(begin, first), std::min(end, last)};
}

}  // namespace

std::size_t decoded_matrices(const GgufFile& file, const std::string& model_type) {
  const auto tensors = file.tensors();
  return static_cast<std::size_t>(std::count_if(tensors.begin(), tensors.end(), [&](const StoredTensor& tensor) {
    const auto known = from_gguf_name(model_type, tensor.name);
    return known && known->change == GgufChange::transpose && !is_plain(tensor.dtype);
  }));
}

GgufWeights::GgufWeights(const std::filesystem::path& path, const ModelConfig& config, Decode decode)
    : file_(path), decode_(decode), head_dim_(config.head_dim) {
  for (const StoredTensor& tensor : file_.tensors()) {
    if (!is_gguf_config_tensor(tensor.name)) add(tensor, config);
  }
  for (std::size_t i = 0; i < entries_.size(); ++i) index_.emplace(entries_[i].shown.name, i);
}

void GgufWeights::add(const StoredTensor& tensor, const ModelConfig& config) {
  const auto known = from_gguf_name(config.model_type, tensor.name);
  if (!known) {
    fail("{}: tensor {} is surplus: a {} model has no such weight", tensor.file, tensor.name, config.model_type);
  }
  if (!is_decodable(tensor.dtype)) {
    fail("{}: tensor {} has type {}, which is not supported", tensor.file, tensor.name, safetensors_name(tensor.dtype));
  }
  Entry entry{tensor, &tensor, known->change};
  entry.shown.name = known->name;
  if (entry.change == GgufChange::transpose) {
    if (tensor.shape.size() != 2) fail("{}: tensor {} is no matrix", tensor.file, tensor.name);
    std::swap(entry.shown.shape[0], entry.shown.shape[1]);
    if (!is_plain(tensor.dtype)) {
      entry.shown.dtype = DType::f32;
      const std::int64_t elements = tensor.shape[0] * tensor.shape[1];
      entry.shown.end = entry.shown.begin + static_cast<std::uint64_t>(storage_bytes(DType::f32, elements));
    }
  }
  check_rows(entry);
  entries_.push_back(std::move(entry));
}

void GgufWeights::check_rows(const Entry& entry) const {
  const StoredTensor& tensor = *entry.stored;
  if (entry.change == GgufChange::add_one && tensor.dtype != DType::f32) {
    fail("{}: tensor {} has type {}; expected F32, as all norms have", tensor.file, tensor.name,
         safetensors_name(tensor.dtype));
  }
  if (entry.change == GgufChange::pair_rows && (head_dim_ % 2 != 0 || tensor.shape.at(0) % head_dim_ != 0)) {
    fail("{}: tensor {} has {} rows; expected a multiple of a head's {}", tensor.file, tensor.name, tensor.shape[0],
         head_dim_);
  }
}

std::vector<const StoredTensor*> GgufWeights::tensors() const {
  std::vector<const StoredTensor*> all;
  all.reserve(entries_.size());
  for (const Entry& entry : entries_) all.push_back(&entry.shown);
  return all;
}

const StoredTensor* GgufWeights::find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &entries_[found->second].shown;
}

void GgufWeights::read(const StoredTensor& tensor, std::uint64_t offset, std::span<std::byte> target) const {
  const Entry& entry = entries_[index_.at(tensor.name)];
  HEDDLE_CHECK(offset + target.size() <= entry.shown.bytes());
  switch (entry.change) {
    case GgufChange::none: file_.read(*entry.stored, offset, target); break;
    case GgufChange::pair_rows: read_unpaired(entry, offset, target); break;
    case GgufChange::add_one: read_norm(entry, offset, target); break;
    case GgufChange::transpose: read_transposed(entry, offset, target); break;
  }
}

/// Head by head: the rows of one lie together in both orders.
void GgufWeights::read_unpaired(const Entry& entry, std::uint64_t offset, std::span<std::byte> target) const {
  const auto rows = static_cast<std::uint64_t>(entry.stored->shape[0]);
  const std::uint64_t row_bytes = entry.stored->bytes() / rows;
  const std::uint64_t head_bytes = row_bytes * static_cast<std::uint64_t>(head_dim_);
  const std::uint64_t end = offset + target.size();
  std::vector<std::byte> head(head_bytes);
  for (std::uint64_t start = offset / head_bytes * head_bytes; start < end; start += head_bytes) {
    file_.read(*entry.stored, start, head);
    for (std::int64_t row = 0; row < head_dim_; ++row) {
      const std::uint64_t row_start = start + static_cast<std::uint64_t>(row) * row_bytes;
      const auto [first, last] = overlap(offset, end, row_start, row_start + row_bytes);
      if (first >= last) continue;
      const std::uint64_t stored_row = static_cast<std::uint64_t>(paired_row(row, head_dim_)) * row_bytes;
      std::memcpy(target.data() + (first - offset), head.data() + stored_row + (first - row_start), last - first);
    }
  }
}

void GgufWeights::read_norm(const Entry& entry, std::uint64_t offset, std::span<std::byte> target) const {
  const std::uint64_t first = offset / sizeof(float),
                      last = (offset + target.size() + sizeof(float) - 1) / sizeof(float);
  std::vector<float> values(last - first);
  file_.read(*entry.stored, first * sizeof(float), std::as_writable_bytes(std::span(values)));
  for (float& value : values) value -= 1.0f;
  const auto bytes = std::as_bytes(std::span(values));
  std::memcpy(target.data(), bytes.data() + (offset - first * sizeof(float)), target.size());
}

/// Reads of each stored row [in] the columns that are asked for: of Hugging Face's matrix [in, out] these are its rows.
void GgufWeights::read_transposed(const Entry& entry, std::uint64_t offset, std::span<std::byte> target) const {
  const StoredTensor& stored = *entry.stored;
  const auto inputs = stored.shape[1], outputs = stored.shape[0];
  const auto size = static_cast<std::int64_t>(dtype_bytes(entry.shown.dtype));
  const std::int64_t begin = static_cast<std::int64_t>(offset), end = begin + static_cast<std::int64_t>(target.size());
  // Columns of the stored rows, widened to whole blocks.
  const std::int64_t block = block_elements(stored.dtype), wanted = (end + size * outputs - 1) / (size * outputs);
  const std::int64_t first = begin / (size * outputs) / block * block;
  const std::int64_t last = std::min((wanted + block - 1) / block * block, inputs), count = last - first;
  const std::int64_t row_bytes = storage_bytes(stored.dtype, inputs);
  std::vector<std::byte> piece(static_cast<std::size_t>(storage_bytes(stored.dtype, count)));
  std::vector<float> decoded(stored.dtype == entry.shown.dtype ? 0 : static_cast<std::size_t>(count));
  for (std::int64_t output = 0; output < outputs; ++output) {
    const std::int64_t at = output * row_bytes + storage_bytes(stored.dtype, first);
    file_.read(stored, static_cast<std::uint64_t>(at), piece);
    if (!decoded.empty()) decode_(stored.dtype, piece.data(), count, 0, count, decoded.data());
    const std::byte* values = decoded.empty() ? piece.data() : std::as_bytes(std::span(decoded)).data();
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t place = ((first + i) * outputs + output) * size;
      const std::int64_t from = std::max(place, begin), to = std::min(place + size, end);
      if (from < to) {
        std::memcpy(target.data() + (from - begin), values + i * size + (from - place),
                    static_cast<std::size_t>(to - from));
      }
    }
  }
}

}  // namespace heddle
