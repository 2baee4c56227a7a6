#include "monitor/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <cmath>

#include "formats/files.h"

namespace heddle {
namespace {

constexpr std::array<std::uint32_t, 256> kCrcTable = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1u) != 0 ? 0x82F63B78u : 0u);
    table[byte] = value;
  }
  return table;
}();

// Protocol buffers, encoding: https://protobuf.dev/programming-guides/encoding/
enum class Wire : unsigned { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

template <typename Word>
void put_fixed(std::string& out, Word word) {
  for (std::size_t i = 0; i < sizeof(Word); ++i) out.push_back(static_cast<char>((word >> (8 * i)) & 0xffu));
}
void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80u));
  out.push_back(static_cast<char>(value));
}
void put_key(std::string& out, unsigned field, Wire wire) {
  put_varint(out, (field << 3) | static_cast<unsigned>(wire));
}
void put_bytes(std::string& out, unsigned field, std::string_view bytes) {
  put_key(out, field, Wire::bytes);
  put_varint(out, bytes.size());
  out += bytes;
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Event: 1 wall_time, 2 step, 3 file_version, 5 summary, 7 session_log.
std::string event_at(std::int64_t step) {
  std::string event;
  put_key(event, 1, Wire::fixed64);
  put_fixed(event, std::bit_cast<std::uint64_t>(wall_time()));
  put_key(event, 2, Wire::varint);
  put_varint(event, static_cast<std::uint64_t>(step));
  return event;
}

std::uint32_t masked_crc(std::string_view bytes) {
  const auto crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

std::filesystem::path new_file_in(const std::filesystem::path& folder) {
  make_folder(folder);
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0 || host[0] == '\0') host = {'h', 'o', 's', 't'};
  for (int number = 0;; ++number) {
    auto path = folder / fmt::format("events.out.tfevents.{}.{}.{}.{}", static_cast<std::int64_t>(wall_time()),
                                     host.data(), ::getpid(), number);
    if (!std::filesystem::exists(path)) return path;
  }
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = ~0u;
  for (const char c : bytes) crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<unsigned char>(c)) & 0xffu];
  return ~crc;
}

EventFile::EventFile(const std::filesystem::path& folder, std::int64_t first_step) : file_(new_file_in(folder), 0) {
  std::string version = event_at(0);
  put_bytes(version, 3, "brain.Event:2");
  append_record(version);
  if (first_step > 1) {
    std::string session;  // SessionLog: 1 status, of which START is 1
    put_key(session, 1, Wire::varint);
    put_varint(session, 1);
    std::string start = event_at(first_step);
    put_bytes(start, 7, session);
    append_record(start);
  }
}

void EventFile::append(std::int64_t step, std::span<const Scalar> scalars) {
  std::string summary;
  for (const auto& scalar : scalars) {
    if (!std::isfinite(scalar.value)) continue;
    std::string value;  // Summary.Value: 1 tag, 2 simple_value
    put_bytes(value, 1, scalar.tag);
    put_key(value, 2, Wire::fixed32);
    put_fixed(value, std::bit_cast<std::uint32_t>(static_cast<float>(scalar.value)));
    put_bytes(summary, 1, value);
  }
  if (summary.empty()) return;
  std::string event = event_at(step);
  put_bytes(event, 5, summary);
  append_record(event);
}

void EventFile::append_record(std::string_view event) {
  std::string record;
  put_fixed(record, std::uint64_t{event.size()});
  put_fixed(record, masked_crc(record));
  record += event;
  put_fixed(record, masked_crc(event));
  file_.append(record);
}

}  // namespace heddle
