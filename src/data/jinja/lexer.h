#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::jinja {

enum class TokenKind : std::uint8_t {
  data,
  variable_begin,
  variable_end,
  block_begin,
  block_end,
  name,
  string,
  integer,
  floating,
  op,  // `text` says which
  end,
};

struct Token {
  TokenKind kind = TokenKind::end;
  std::string_view text;  // of strings: unescaped
  int line = 1;
  std::int64_t integer = 0;
  double floating = 0.0;

  bool is_op(std::string_view op) const { return kind == TokenKind::op && text == op; }
  bool is_name(std::string_view name) const { return kind == TokenKind::name && text == name; }
};

/// Where the template is being read, for the error that may come.
struct Place {
  int line = 1;
};

/// Cuts a template into tokens, as Jinja does with trim_blocks and lstrip_blocks. `source` has had its line breaks made
/// "\n" and must outlive the tokens; `texts` owns what is not part of it. Throws Error; `place` then says where.
std::vector<Token> tokenize(std::string_view source, std::deque<std::string>& texts, Place& place);

/// "\r\n" and "\r" become "\n", and one line break at the end goes.
std::string normalize_lines(std::string_view source);

}  // namespace heddle::jinja
