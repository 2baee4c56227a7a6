#pragma once

#include <bit>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "tokenizer_json.h"

namespace heddle::test {

/// Fields of a protobuf message.
inline std::string varint(std::uint64_t value) {
  std::string out;
  for (; value > 127; value >>= 7) out += static_cast<char>(value | 128);
  return out + static_cast<char>(value);
}
inline std::string wire_bytes(std::uint64_t number, std::string_view bytes) {
  return varint(number << 3 | 2) + varint(bytes.size()) + std::string(bytes);
}
inline std::string wire_number(std::uint64_t number, std::uint64_t value) {
  return varint(number << 3) + varint(value);
}
inline std::string fixed32(std::uint32_t value) {
  std::string out;
  for (int i = 0; i < 4; ++i) out += static_cast<char>(value >> (8 * i));
  return out;
}
inline std::string wire_single(std::uint64_t number, float value) {
  return varint(number << 3 | 5) + fixed32(std::bit_cast<std::uint32_t>(value));
}

enum PieceType : std::uint64_t { normal = 1, unknown, control, user_defined, unused, byte };
inline std::string piece(std::string_view text, float score, PieceType type) {
  return wire_bytes(1, wire_bytes(1, text) + wire_single(2, score) + wire_number(3, type));
}
/// Pieces of ids 0 to 10: what the tests below have expected ids for.
inline std::string letter_pieces() {
  return piece("<unk>", 0, unknown) + piece("<s>", 0, control) + piece("</s>", 0, control) +
         piece("\xE2\x96\x81", -1, normal) + piece("a", -2, normal) + piece("b", -2, normal) +
         piece(
             "\xE2\x96\x81"
             "a",
             -1.5F, normal) +
         piece("ab", -1.5F, unused) + piece("bb", -1.25F, normal) + piece("abb", -1.25F, normal) +
         piece("\xC3\xA9l", -3, user_defined);
}
/// Those of the bytes: id 11 is <0x00>.
inline std::string byte_pieces() {
  std::string all;
  for (unsigned i = 0; i < 256; ++i) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", i);
    all += piece(name, 0, byte);
  }
  return all;
}

enum Algorithm : std::uint64_t { unigram = 1, bpe, word };
inline std::string trainer(Algorithm algorithm, std::string_view more = "") {
  return wire_bytes(2, wire_number(3, algorithm) + std::string(more));
}
inline std::string byte_fallback() { return wire_number(35, 1); }
inline std::string normalizer(bool add_dummy_prefix, bool remove_extra_whitespaces, bool escape_whitespaces,
                              std::string_view charsmap = "") {
  return wire_bytes(3, wire_number(3, add_dummy_prefix) + wire_number(4, remove_extra_whitespaces) +
                           wire_number(5, escape_whitespaces) +
                           (charsmap.empty() ? std::string() : wire_bytes(2, charsmap)));
}

/// A charsmap that replaces "b": a double array with the path of one byte, and the replacement.
inline std::string charsmap(std::string_view replacement) {
  std::string units(std::size_t{512} * 4, '\0');
  units.replace(0, 4, fixed32(256U << 10));
  const std::uint32_t node = 256U ^ 'b';
  units.replace(std::size_t{node} * 4, 4, fixed32((node ^ 300U) << 10 | 1U << 8 | 'b'));
  units.replace(std::size_t{300} * 4, 4, fixed32(1U << 31));
  return fixed32(static_cast<std::uint32_t>(units.size())) + units + std::string(replacement) + '\0';
}

inline std::unique_ptr<Tokenizer> load_model(const std::string& bytes) {
  const TemporaryFolder folder;
  folder.write("tokenizer.model", bytes);
  return Tokenizer::load(folder.path() / "tokenizer.model");
}
inline std::unique_ptr<Tokenizer> load_model_folder(const std::string& bytes, const std::string& config) {
  const TemporaryFolder folder;
  folder.write("tokenizer.model", bytes);
  folder.write("tokenizer_config.json", config);
  return Tokenizer::load(folder.path());
}

}  // namespace heddle::test
