#include "data/token_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <xxhash.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/mapped_file.h"

namespace heddle {
namespace {

static_assert(std::endian::native == std::endian::little, "cache files are little-endian");
static_assert(std::has_unique_object_representations_v<TokenRow>, "rows are written as they lie in memory");

constexpr std::array<char, 8> kMagic = {'H', 'E', 'D', 'T', 'O', 'K', 'S', '1'};

/// A cache file: this header, ids, labels, padding to 8 bytes, rows, notes (JSON), nothing more.
struct Header {
  std::array<char, 8> magic = kMagic;
  std::array<char, 32> key{};
  std::int64_t num_ids = 0, num_labels = 0, num_rows = 0, notes_bytes = 0, stream_length = 0;
  std::uint64_t payload_low = 0, payload_high = 0;  // XXH3-128 of all that follows the header
  std::uint64_t checksum = 0;                       // XXH3-64 of the fields above
};
static_assert(std::has_unique_object_representations_v<Header>);

std::uint64_t header_checksum(const Header& header) { return XXH3_64bits(&header, offsetof(Header, checksum)); }

template <typename... Args>
[[noreturn]] void cache_fail(fmt::format_string<Args...> format, Args&&... args) {
  throw CacheError(fmt::format(format, std::forward<Args>(args)...));
}

std::span<const std::byte> as_bytes(const void* data, std::size_t size) {
  return {static_cast<const std::byte*>(data), size};
}

struct FreeHash {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};
using HashState = std::unique_ptr<XXH3_state_t, FreeHash>;

HashState new_hash() {
  HashState state(XXH3_createState());
  HEDDLE_CHECK(state != nullptr && XXH3_128bits_reset(state.get()) == XXH_OK);
  return state;
}

std::string write_notes(const TableNotes& notes) {
  nlohmann::json out = {{"bad_rows", nlohmann::json::array()},
                        {"rows_without_targets", notes.rows_without_targets},
                        {"ignored_fields", notes.ignored_fields}};
  for (const auto& [line, reason] : notes.bad_rows) out["bad_rows"].push_back({line, reason});
  return out.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

TableNotes read_notes(std::string_view text) {
  const auto in = nlohmann::json::parse(text);
  TableNotes notes;
  in.at("rows_without_targets").get_to(notes.rows_without_targets);
  in.at("ignored_fields").get_to(notes.ignored_fields);
  for (const auto& row : in.at("bad_rows")) notes.bad_rows.push_back({row.at(0), row.at(1)});
  return notes;
}

/// Bytes appended to a file that has no name or a passing one; gone with the object.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::filesystem::path& folder) : name_((folder / "writing.XXXXXX").string()) {
    file_ = ::mkostemp(name_.data(), O_CLOEXEC);
    if (file_ < 0) cache_fail("{}: a file cannot be made here: {}", folder.string(), std::strerror(errno));
  }
  ~TemporaryFile() {
    ::close(file_);
    if (!renamed_) ::unlink(name_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void append(std::span<const std::byte> bytes) {
    if (buffer_.size() + bytes.size() > kBlock) flush();
    if (bytes.size() >= kBlock) {
      write_at(size_, bytes);
      size_ += static_cast<std::int64_t>(bytes.size());
    } else {
      buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    }
  }
  void flush() {
    write_at(size_, buffer_);
    size_ += static_cast<std::int64_t>(buffer_.size());
    buffer_.clear();
  }
  void write_at(std::int64_t offset, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::pwrite(file_, bytes.data(), bytes.size(), offset);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) cache_fail("{}: cannot be written: {}", name_, std::strerror(errno));
      bytes = bytes.subspan(static_cast<std::size_t>(count));
      offset += count;
    }
  }
  /// Everything that was appended, block by block.
  template <typename Function>
  void read_back(Function&& use) {
    flush();
    std::vector<std::byte> block(kBlock);
    for (std::int64_t at = 0; at < size_;) {
      const ssize_t count = ::pread(file_, block.data(), block.size(), at);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) cache_fail("{}: cannot be read back: {}", name_, std::strerror(errno));
      use(std::span<const std::byte>(block.data(), static_cast<std::size_t>(count)));
      at += count;
    }
  }
  void rename_to(const std::filesystem::path& path) {
    flush();
    if (::fchmod(file_, 0644) != 0 || ::fsync(file_) != 0 || std::rename(name_.c_str(), path.c_str()) != 0) {
      cache_fail("{}: cannot be written: {}", path.string(), std::strerror(errno));
    }
    renamed_ = true;
  }

 private:
  static constexpr std::size_t kBlock = std::size_t{1} << 20;
  std::string name_;
  int file_ = -1;
  bool renamed_ = false;
  std::int64_t size_ = 0;
  std::vector<std::byte> buffer_;
};

struct Arrays {
  std::vector<std::int32_t> ids, labels;
  std::vector<TokenRow> rows;
};

/// Whether every row lies within the arrays: the promise that training reads rely on.
bool rows_are_sound(std::span<const TokenRow> rows, std::int64_t num_ids, std::int64_t num_labels,
                    std::int64_t stream_length) {
  const auto within = [](std::int64_t offset, std::int64_t length, std::int64_t size) {
    return offset >= 0 && length <= size && offset <= size - length;
  };
  std::int64_t stream = 0;
  for (const TokenRow& row : rows) {
    if (row.length < 2 || !within(row.offset, row.length, num_ids) || row.stream_start != stream) return false;
    if (row.label_offset != -1 && !within(row.label_offset, row.length, num_labels)) return false;
    if (row.kind == RowKind::text) stream += row.length - 1;
  }
  return stream == stream_length;
}

}  // namespace

std::span<const std::int32_t> TokenTable::ids(const TokenRow& row) const {
  return ids_.subspan(static_cast<std::size_t>(row.offset), static_cast<std::size_t>(row.length));
}

std::span<const std::int32_t> TokenTable::labels(const TokenRow& row) const {
  if (row.label_offset < 0) return ids(row);
  return labels_.subspan(static_cast<std::size_t>(row.label_offset), static_cast<std::size_t>(row.length));
}

std::optional<TokenTable> TokenTable::open(const std::filesystem::path& path, std::string_view key,
                                           std::string& damage) {
  damage.clear();
  std::error_code code;
  if (!std::filesystem::exists(path, code)) return std::nullopt;
  const auto damaged = [&](std::string what) {
    damage = std::move(what);
    return std::nullopt;
  };
  std::shared_ptr<MappedFile> file;
  try {
    file = std::make_shared<MappedFile>(path);
  } catch (const Error& error) {
    return damaged(error.what());
  }
  const auto bytes = file->bytes();
  Header header;
  if (bytes.size() < sizeof(header)) return damaged("it ends within its header");
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != kMagic) return damaged("it is no token cache of this version");
  if (header.checksum != header_checksum(header)) return damaged("the checksum of its header differs");
  if (std::string_view(header.key.data(), header.key.size()) != key) return damaged("it has another key");
  const auto payload = bytes.subspan(sizeof(header));
  const XXH128_hash_t hash = XXH3_128bits(payload.data(), payload.size());
  if (hash.low64 != header.payload_low || hash.high64 != header.payload_high) return damaged("its checksum differs");

  // The checksums held, so the counts are those that were written; they are checked to match the size all the same.
  const auto size = static_cast<std::int64_t>(payload.size());
  if (std::min({header.num_ids, header.num_labels, header.num_rows, header.notes_bytes}) < 0 ||
      std::max({header.num_ids, header.num_labels, header.num_rows, header.notes_bytes}) > size) {
    return damaged("its counts do not match its size");
  }
  const std::int64_t rows_at = ((header.num_ids + header.num_labels) * 4 + 7) / 8 * 8;
  const std::int64_t notes_at = rows_at + header.num_rows * static_cast<std::int64_t>(sizeof(TokenRow));
  if (notes_at + header.notes_bytes != size) return damaged("its counts do not match its size");

  TokenTable table;
  const auto* ids = reinterpret_cast<const std::int32_t*>(payload.data());
  table.ids_ = {ids, static_cast<std::size_t>(header.num_ids)};
  table.labels_ = {ids + header.num_ids, static_cast<std::size_t>(header.num_labels)};
  table.rows_ = {reinterpret_cast<const TokenRow*>(payload.data() + rows_at),
                 static_cast<std::size_t>(header.num_rows)};
  table.stream_length_ = header.stream_length;
  if (!rows_are_sound(table.rows_, header.num_ids, header.num_labels, header.stream_length)) {
    return damaged("its rows leave its ids");
  }
  try {
    table.notes_ = read_notes(file->text().substr(sizeof(header) + static_cast<std::size_t>(notes_at)));
  } catch (const nlohmann::json::exception&) {
    return damaged("its notes cannot be read");
  }
  table.owner_ = std::move(file);
  return table;
}

/// Where rows go: arrays in memory, or a file to be and two beside it for what comes after the ids.
struct TokenTableWriter::Sink {
  struct Files {
    Files(std::filesystem::path target_path, std::string_view key_digits)
        : target(std::move(target_path)),
          key(key_digits),
          table(target.parent_path()),
          labels(target.parent_path()),
          rows(target.parent_path()) {
      table.append(as_bytes(&header, sizeof(header)));  // holds the place
    }
    void put(std::span<const std::byte> bytes) {
      XXH3_128bits_update(hash.get(), bytes.data(), bytes.size());
      table.append(bytes);
    }
    std::filesystem::path target;
    std::string key;
    Header header;
    HashState hash = new_hash();
    TemporaryFile table, labels, rows;
  };
  Arrays arrays;
  std::unique_ptr<Files> files;
};

TokenTableWriter::TokenTableWriter() : sink_(std::make_unique<Sink>()) {}

TokenTableWriter::TokenTableWriter(std::filesystem::path path, std::string_view key) : TokenTableWriter() {
  HEDDLE_CHECK(key.size() == Header().key.size());
  sink_->files = std::make_unique<Sink::Files>(std::move(path), key);
}

TokenTableWriter::~TokenTableWriter() = default;

void TokenTableWriter::append(RowKind kind, std::int64_t line, std::span<const std::int32_t> ids,
                              std::span<const std::int32_t> labels) {
  HEDDLE_CHECK(labels.empty() || labels.size() == ids.size());
  const auto length = static_cast<std::int64_t>(ids.size());
  std::int64_t targets = std::max<std::int64_t>(length - 1, 0);
  if (!labels.empty()) targets -= std::count(labels.begin() + 1, labels.end(), -100);
  if (targets == 0) {
    notes_.rows_without_targets.push_back(line);
    return;
  }
  TokenRow row;
  row.offset = num_ids_;
  row.length = length;
  row.label_offset = labels.empty() ? -1 : num_labels_;
  row.targets = targets;
  row.stream_start = stream_length_;
  row.line = line;
  row.kind = kind;
  if (sink_->files) {
    sink_->files->put(as_bytes(ids.data(), ids.size_bytes()));
    sink_->files->labels.append(as_bytes(labels.data(), labels.size_bytes()));
    sink_->files->rows.append(as_bytes(&row, sizeof(row)));
  } else {
    auto& arrays = sink_->arrays;
    arrays.ids.insert(arrays.ids.end(), ids.begin(), ids.end());
    arrays.labels.insert(arrays.labels.end(), labels.begin(), labels.end());
    arrays.rows.push_back(row);
  }
  num_ids_ += length;
  num_labels_ += static_cast<std::int64_t>(labels.size());
  num_rows_ += 1;
  if (kind == RowKind::text) stream_length_ += length - 1;
}

TokenTable TokenTableWriter::finish() {
  if (!sink_->files) {
    auto arrays = std::make_shared<Arrays>(std::move(sink_->arrays));
    TokenTable table;
    table.ids_ = arrays->ids;
    table.labels_ = arrays->labels;
    table.rows_ = arrays->rows;
    table.notes_ = std::move(notes_);
    table.stream_length_ = stream_length_;
    table.owner_ = std::move(arrays);
    return table;
  }
  auto& files = *sink_->files;
  files.labels.read_back([&](auto bytes) { files.put(bytes); });
  constexpr std::int32_t kPadding = 0;
  if ((num_ids_ + num_labels_) % 2 != 0) files.put(as_bytes(&kPadding, sizeof(kPadding)));
  files.rows.read_back([&](auto bytes) { files.put(bytes); });
  const std::string notes = write_notes(notes_);
  files.put(as_bytes(notes.data(), notes.size()));

  Header& header = files.header;
  std::copy(files.key.begin(), files.key.end(), header.key.begin());
  header.num_ids = num_ids_;
  header.num_labels = num_labels_;
  header.num_rows = num_rows_;
  header.notes_bytes = static_cast<std::int64_t>(notes.size());
  header.stream_length = stream_length_;
  const XXH128_hash_t hash = XXH3_128bits_digest(files.hash.get());
  header.payload_low = hash.low64;
  header.payload_high = hash.high64;
  header.checksum = header_checksum(header);
  files.table.flush();
  files.table.write_at(0, as_bytes(&header, sizeof(header)));
  files.table.rename_to(files.target);

  std::string damage;
  auto table = TokenTable::open(files.target, files.key, damage);
  if (!table) cache_fail("{}: damaged as soon as it was written: {}", files.target.string(), damage);
  return *std::move(table);
}

struct CacheKey::State {
  HashState hash = new_hash();
};

CacheKey::CacheKey() : state_(std::make_unique<State>()) {}
CacheKey::~CacheKey() = default;

void CacheKey::add(std::string_view bytes) {
  add(static_cast<std::int64_t>(bytes.size()));
  XXH3_128bits_update(state_->hash.get(), bytes.data(), bytes.size());
}

void CacheKey::add(std::int64_t value) { XXH3_128bits_update(state_->hash.get(), &value, sizeof(value)); }

void CacheKey::add(std::span<const std::int32_t> values) {
  add(std::string_view(reinterpret_cast<const char*>(values.data()), values.size_bytes()));
}

std::string CacheKey::digest() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->hash.get());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace heddle
