#include "data/tokenizer/wire_format.h"

#include <bit>

#include "base/error.h"

namespace heddle {

void WireReader::refuse(std::size_t at, std::string_view what) const {
  fail("{}: byte {}: {}; expected a protobuf message", file_, offset_ + at, what);
}

std::uint64_t WireReader::varint() {
  const std::size_t begin = at_;
  std::uint64_t value = 0;
  for (unsigned shift = 0; at_ < message_.size(); shift += 7) {
    const auto byte = static_cast<unsigned char>(message_[at_++]);
    if (shift == 63 && byte > 1) refuse(begin, "a varint is longer than 64 bits");
    value |= std::uint64_t{byte & 0x7FU} << shift;
    if (byte < 0x80) return value;
  }
  refuse(begin, "a varint runs past the end");
}

std::string_view WireReader::take(std::uint64_t size, std::size_t begin) {
  if (size > message_.size() - at_) {
    refuse(begin, fmt::format("a field has {} bytes, {} are left", size, message_.size() - at_));
  }
  const std::string_view taken = message_.substr(at_, static_cast<std::size_t>(size));
  at_ += taken.size();
  return taken;
}

std::uint64_t WireReader::fixed(std::size_t size) {
  std::uint64_t value = 0;
  unsigned shift = 0;
  for (const char byte : take(size, at_)) {
    value |= std::uint64_t{static_cast<unsigned char>(byte)} << shift;
    shift += 8;
  }
  return value;
}

bool WireReader::next(WireField& field) {
  if (at_ == message_.size()) return false;
  const std::size_t begin = at_;
  const std::uint64_t key = varint();
  const std::uint64_t number = key >> 3, type = key & 7;
  constexpr std::uint64_t greatest_number = (1U << 29) - 1;
  if (number == 0 || number > greatest_number) refuse(begin, fmt::format("a field has number {}", number));
  field = {static_cast<std::uint32_t>(number), static_cast<WireField::Type>(type), 0, {}, offset_ + begin};
  switch (field.type) {
    case WireField::Type::varint: field.value = varint(); return true;
    case WireField::Type::fixed64: field.value = fixed(8); return true;
    case WireField::Type::fixed32: field.value = fixed(4); return true;
    case WireField::Type::bytes: field.bytes = take(varint(), begin); return true;
  }
  refuse(begin, fmt::format("a field has wire type {}", type));
}

WireReader WireReader::inside(const WireField& field) const {
  const auto begin = static_cast<std::size_t>(field.bytes.data() - message_.data());
  return {field.bytes, file_, offset_ + begin};
}

void WireReader::require(const WireField& field, WireField::Type type, std::string_view name) const {
  if (field.type == type) return;
  fail("{}: byte {}: {} has wire type {}; expected {}", file_, field.offset, name, static_cast<int>(field.type),
       static_cast<int>(type));
}

bool WireReader::boolean(const WireField& field, std::string_view name) const {
  require(field, WireField::Type::varint, name);
  return field.value != 0;
}

std::int32_t WireReader::int32(const WireField& field, std::string_view name) const {
  require(field, WireField::Type::varint, name);
  const auto value = static_cast<std::int64_t>(field.value);  // negative ones come as 64 bits
  if (value < INT32_MIN || value > INT32_MAX) {
    fail("{}: byte {}: {} is {}; expected 32 bits", file_, field.offset, name, value);
  }
  return static_cast<std::int32_t>(value);
}

float WireReader::single(const WireField& field, std::string_view name) const {
  require(field, WireField::Type::fixed32, name);
  return std::bit_cast<float>(static_cast<std::uint32_t>(field.value));
}

std::string_view WireReader::bytes(const WireField& field, std::string_view name) const {
  require(field, WireField::Type::bytes, name);
  return field.bytes;
}

}  // namespace heddle
