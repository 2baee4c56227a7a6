#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace heddle {

/// One field of a protobuf message. (https://protobuf.dev/programming-guides/encoding)
struct WireField {
  enum class Type { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

  std::uint32_t number = 0;
  Type type = Type::varint;
  std::uint64_t value = 0;  ///< of varint, fixed64 and fixed32
  std::string_view bytes;   ///< of bytes: a string or a message inside
  std::size_t offset = 0;   ///< in the file, of the field's key
};

/// Reads the fields of a protobuf message in order. Throws Error, naming the byte, for anything that is no sound
/// message: broken varints, lengths beyond the end, groups, field number 0.
class WireReader {
 public:
  /// `message` begins at byte `offset` of the file `file`.
  WireReader(std::string_view message, std::string file, std::size_t offset = 0)
      : message_(message), file_(std::move(file)), offset_(offset) {}

  /// False at the end of the message.
  bool next(WireField& field);
  /// A reader of the message that `field` holds.
  WireReader inside(const WireField& field) const;

  /// The values of a field that must have the type; `name` names it in messages.
  bool boolean(const WireField& field, std::string_view name) const;
  std::int32_t int32(const WireField& field, std::string_view name) const;
  float single(const WireField& field, std::string_view name) const;
  std::string_view bytes(const WireField& field, std::string_view name) const;

 private:
  [[noreturn]] void refuse(std::size_t at, std::string_view what) const;
  void require(const WireField& field, WireField::Type type, std::string_view name) const;
  std::uint64_t varint();
  std::uint64_t fixed(std::size_t size);
  std::string_view take(std::uint64_t size, std::size_t begin);

  std::string_view message_;
  std::string file_;
  std::size_t offset_, at_ = 0;
};

}  // namespace heddle
