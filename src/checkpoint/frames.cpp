#include "checkpoint/frames.h"

#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace heddle {
namespace {

constexpr std::size_t kWord = 4;

void shuffle(std::span<const std::byte> content, std::span<std::byte> planes) {
  const std::size_t words = content.size() / kWord;
  std::byte *first = planes.data(), *second = first + words, *third = second + words, *fourth = third + words;
  for (std::size_t i = 0; i < words; ++i) {
    first[i] = content[kWord * i];
    second[i] = content[kWord * i + 1];
    third[i] = content[kWord * i + 2];
    fourth[i] = content[kWord * i + 3];
  }
  std::copy(content.begin() + static_cast<std::ptrdiff_t>(kWord * words), content.end(), fourth + words);
}

void unshuffle(std::span<const std::byte> planes, std::span<std::byte> content) {
  const std::size_t words = planes.size() / kWord;
  const std::byte *first = planes.data(), *second = first + words, *third = second + words, *fourth = third + words;
  for (std::size_t i = 0; i < words; ++i) {
    content[kWord * i] = first[i];
    content[kWord * i + 1] = second[i];
    content[kWord * i + 2] = third[i];
    content[kWord * i + 3] = fourth[i];
  }
  std::copy(planes.begin() + static_cast<std::ptrdiff_t>(kWord * words), planes.end(),
            content.begin() + static_cast<std::ptrdiff_t>(kWord * words));
}

}  // namespace

struct FrameEncoder::Context {
  std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> zstd{ZSTD_createCCtx(), ZSTD_freeCCtx};
};

FrameEncoder::FrameEncoder(std::span<std::byte> buffers) : context_(std::make_unique<Context>()) {
  HEDDLE_CHECK(ZSTD_compressBound(kFrameBytes) <= kMostFrameBytes);
  if (buffers.size() < kBufferBytes) {
    own_.resize(kBufferBytes);
    buffers = own_;
  }
  content_ = buffers.first(kMostFrameBytes);
  shuffled_ = buffers.subspan(kMostFrameBytes, kMostFrameBytes);
  ZSTD_CCtx* zstd = context_->zstd.get();
  if (zstd == nullptr) fail("no memory to compress a checkpoint");
  // Level 1 with hardly any search for matches: the bytes of floats have none but runs, and what looks like one spoils
  // the entropy codes. Measured: half the time, and no byte more.
  for (const auto& [parameter, value] : {std::pair{ZSTD_c_compressionLevel, 1}, std::pair{ZSTD_c_minMatch, 7},
                                         std::pair{ZSTD_c_hashLog, 6}, std::pair{ZSTD_c_checksumFlag, 1}})
    HEDDLE_CHECK(ZSTD_isError(ZSTD_CCtx_setParameter(zstd, parameter, value)) == 0);
}

FrameEncoder::~FrameEncoder() = default;

std::span<const std::byte> FrameEncoder::encode(std::size_t bytes) {
  shuffle(content_.first(bytes), shuffled_.first(bytes));
  const std::size_t stored =
      ZSTD_compress2(context_->zstd.get(), content_.data(), content_.size(), shuffled_.data(), bytes);
  if (ZSTD_isError(stored) != 0) fail("a checkpoint cannot be compressed: {}", ZSTD_getErrorName(stored));
  return content_.first(stored);
}

struct FrameDecoder::Context {
  std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> zstd{ZSTD_createDCtx(), ZSTD_freeDCtx};
};

FrameDecoder::FrameDecoder() = default;
FrameDecoder::~FrameDecoder() = default;

int FrameDecoder::add_file() {
  const std::lock_guard lock(mutex_);
  return files_++;
}

void FrameDecoder::read(int file_number, const FileReader& file, const Frame& frame, std::size_t offset,
                        std::span<std::byte> target) {
  const std::lock_guard lock(mutex_);
  if (file_ != file_number || begin_ != frame.begin) {
    file_ = -1;
    decode(file, frame);
    file_ = file_number;
    begin_ = frame.begin;
  }
  std::memcpy(target.data(), content_.data() + offset, target.size());
}

void FrameDecoder::decode(const FileReader& file, const Frame& frame) {
  if (context_ == nullptr) {
    context_ = std::make_unique<Context>();
    if (context_->zstd == nullptr) fail("{}: no memory to decompress it", file.path());
    content_.resize(kMostFrameBytes);
    shuffled_.resize(kFrameBytes);
  }
  const auto stored = std::span(content_).first(frame.stored_bytes);
  file.read(frame.begin, stored);
  const std::size_t bytes =
      ZSTD_decompressDCtx(context_->zstd.get(), shuffled_.data(), shuffled_.size(), stored.data(), stored.size());
  const auto damaged = [&](const std::string& reason) {
    fail("{}: is damaged: its frame between bytes {} and {} cannot be decompressed: {}", file.path(), frame.begin,
         frame.begin + frame.stored_bytes, reason);
  };
  if (ZSTD_isError(bytes) != 0) damaged(ZSTD_getErrorName(bytes));
  if (bytes != frame.content_bytes) damaged(fmt::format("it has {} bytes instead of {}", bytes, frame.content_bytes));
  unshuffle(std::span(shuffled_).first(bytes), std::span(content_).first(bytes));
}

CompressedFile::CompressedFile(const std::filesystem::path& path, const FrameIndex& index,
                               std::shared_ptr<FrameDecoder> decoder)
    : file_(path), size_(index.content_bytes), decoder_(std::move(decoder)), number_(decoder_->add_file()) {
  for (const auto bytes : index.stored_bytes) begins_.push_back(begins_.back() + bytes);
}

void CompressedFile::read(std::uint64_t offset, std::span<std::byte> target) const {
  while (!target.empty()) {
    const std::size_t frame = offset / kFrameBytes, inside = offset % kFrameBytes;
    const std::size_t content = std::min<std::uint64_t>(kFrameBytes, size_ - frame * kFrameBytes);
    const std::size_t bytes = std::min(target.size(), content - inside);
    decoder_->read(number_, file_, {begins_[frame], begins_[frame + 1] - begins_[frame], content}, inside,
                   target.first(bytes));
    target = target.subspan(bytes);
    offset += bytes;
  }
}

}  // namespace heddle
