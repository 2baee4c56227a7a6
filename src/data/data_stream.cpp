#include "data/data_stream.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"

namespace heddle {
namespace {

constexpr std::size_t kBlock = std::size_t{256} << 10;

/// A file front to back, a block at a time.
class FileBlocks {
 public:
  explicit FileBlocks(const FileReader& file) : file_(&file) {}
  const std::string& path() const { return file_->path(); }
  bool is_at_end() const { return at_ == file_->size(); }
  std::size_t read(std::span<char> target) {
    target = target.first(static_cast<std::size_t>(std::min<std::uint64_t>(target.size(), file_->size() - at_)));
    file_->read(at_, target);
    at_ += target.size();
    return target.size();
  }

 private:
  const FileReader* file_;
  std::uint64_t at_ = 0;
};

class PlainDecoder final : public DataStream::Decoder {
 public:
  explicit PlainDecoder(const FileReader& file) : file_(file) {}
  std::size_t read(std::span<char> target) override { return file_.read(target); }

 private:
  FileBlocks file_;
};

class GzipDecoder final : public DataStream::Decoder {
 public:
  explicit GzipDecoder(const FileReader& file) : file_(file), block_(kBlock) {
    constexpr int kGzipOnly = 16;
    if (inflateInit2(&stream_, MAX_WBITS + kGzipOnly) != Z_OK) fail("{}: no memory to decompress it", file_.path());
  }
  GzipDecoder(const GzipDecoder&) = delete;
  GzipDecoder& operator=(const GzipDecoder&) = delete;
  ~GzipDecoder() override { inflateEnd(&stream_); }

  std::size_t read(std::span<char> target) override {
    std::size_t done = 0;
    while (done < target.size() && has_input()) {
      if (is_between_members_) begin_member();
      const std::size_t room = std::min<std::size_t>(target.size() - done, std::numeric_limits<uInt>::max());
      stream_.next_out = reinterpret_cast<Bytef*>(target.data() + done);
      stream_.avail_out = static_cast<uInt>(room);
      const int state = inflate(&stream_, Z_NO_FLUSH);
      done += room - stream_.avail_out;
      if (state == Z_STREAM_END) {
        is_between_members_ = true;
      } else if (state != Z_OK && state != Z_BUF_ERROR) {
        fail("{}: the gzip data is damaged: {}", file_.path(),
             stream_.msg != nullptr ? stream_.msg : "no reason given");
      } else if (state == Z_BUF_ERROR && stream_.avail_in > 0 && stream_.avail_out > 0) {
        fail("{}: the gzip data is damaged", file_.path());
      }
    }
    return done;
  }

 private:
  /// False at the end of the file, between members. Inside one, output may be pending without input.
  bool has_input() {
    if (stream_.avail_in > 0) return true;
    if (file_.is_at_end()) {
      if (is_between_members_) return false;
      if (is_drained_) fail("{}: the gzip data ends early", file_.path());
      is_drained_ = true;
      return true;
    }
    stream_.next_in = reinterpret_cast<Bytef*>(block_.data());
    stream_.avail_in = static_cast<uInt>(file_.read(block_));
    return true;
  }
  void begin_member() {
    if (inflateReset(&stream_) != Z_OK) fail("{}: the gzip data cannot be read", file_.path());
    is_between_members_ = false;
  }

  FileBlocks file_;
  std::vector<char> block_;
  z_stream stream_{};
  bool is_between_members_ = true, is_drained_ = false;
};

class ZstdDecoder final : public DataStream::Decoder {
 public:
  explicit ZstdDecoder(const FileReader& file) : file_(file), block_(kBlock), stream_(ZSTD_createDStream()) {
    if (stream_ == nullptr) fail("{}: no memory to decompress it", file_.path());
  }

  std::size_t read(std::span<char> target) override {
    ZSTD_outBuffer out{target.data(), target.size(), 0};
    while (out.pos < out.size) {
      if (in_.pos == in_.size && !file_.is_at_end()) in_ = {block_.data(), file_.read(block_), 0};
      const bool has_input = in_.pos < in_.size;
      if (!has_input && is_between_frames_) break;
      const std::size_t before = out.pos;
      const std::size_t state = ZSTD_decompressStream(stream_.get(), &out, &in_);
      if (ZSTD_isError(state) != 0) {
        fail("{}: the Zstandard data is damaged: {}", file_.path(), ZSTD_getErrorName(state));
      }
      is_between_frames_ = state == 0;
      if (!has_input && !is_between_frames_ && out.pos == before) {
        fail("{}: the Zstandard data ends early", file_.path());
      }
    }
    return out.pos;
  }

 private:
  struct Free {
    void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
  };
  FileBlocks file_;
  std::vector<char> block_;
  std::unique_ptr<ZSTD_DStream, Free> stream_;
  ZSTD_inBuffer in_{nullptr, 0, 0};
  bool is_between_frames_ = true;
};

std::unique_ptr<DataStream::Decoder> make_decoder(const FileReader& file, Compression compression) {
  switch (compression) {
    case Compression::gzip: return std::make_unique<GzipDecoder>(file);
    case Compression::zstd: return std::make_unique<ZstdDecoder>(file);
    case Compression::none: break;
  }
  return std::make_unique<PlainDecoder>(file);
}

}  // namespace

Compression compression_of(const std::filesystem::path& path) {
  const auto extension = path.extension();
  return extension == ".gz" ? Compression::gzip : extension == ".zst" ? Compression::zstd : Compression::none;
}

DataStream::DataStream(const FileReader& file, Compression compression) : decoder_(make_decoder(file, compression)) {}

}  // namespace heddle
