#pragma once

#include <span>
#include <string>
#include <string_view>

#include "config/source_node.h"

namespace heddle {

/// What a key's value must look like. A row of the key tables says it in one expression:
/// `ValueRule::whole(1, 1000)`, `ValueRule::one_of(kWords)`, `ValueRule::number().above(0).or_null()`.
struct ValueRule {
  enum class Type {
    boolean,
    whole,
    number,
    text,
    word,
    bytes,
    text_list,
    number_list,
    whole_list,
    token_indices,
    map,
    text_map,
    resume,
    data_files,
    param_groups
  };
  static constexpr double kUnbounded = 0x1p63;

  Type type = Type::text;
  double least = 0, most = kUnbounded;
  bool above_least = false, below_most = false;  // the bound itself is excluded
  bool is_optional = false;                      // null is a value: not set
  std::span<const std::string_view> words = {};  // of a word; of text and text_list: single words that are also known
  int length = 0;                                // number_list

  static constexpr ValueRule boolean() { return {.type = Type::boolean}; }
  static constexpr ValueRule whole(double least, double most = kUnbounded) {
    return {.type = Type::whole, .least = least, .most = most};
  }
  static constexpr ValueRule number(double least, double most = kUnbounded) {
    return {.type = Type::number, .least = least, .most = most};
  }
  /// In [least, most).
  static constexpr ValueRule half_open(double least, double most) {
    return {.type = Type::number, .least = least, .most = most, .below_most = true};
  }
  static constexpr ValueRule above(double least) { return {.type = Type::number, .least = least, .above_least = true}; }
  static constexpr ValueRule positive() { return above(0); }
  static constexpr ValueRule text() { return {.type = Type::text}; }
  static constexpr ValueRule one_of(std::span<const std::string_view> words) {
    return {.type = Type::word, .words = words};
  }
  static constexpr ValueRule bytes() { return {.type = Type::bytes}; }
  static constexpr ValueRule text_list() { return {.type = Type::text_list}; }
  static constexpr ValueRule number_list(int length, double least, double below) {
    return {.type = Type::number_list, .least = least, .most = below, .below_most = true, .length = length};
  }
  /// Any number of them.
  static constexpr ValueRule whole_list(double least, double most = kUnbounded) {
    return {.type = Type::whole_list, .least = least, .most = most};
  }
  /// A list of ids, or such lists by a module's name.
  static constexpr ValueRule token_indices() {
    return {.type = Type::token_indices, .most = 0x1p31, .below_most = true};
  }
  static constexpr ValueRule map() { return {.type = Type::map}; }
  /// Names to texts.
  static constexpr ValueRule text_map() { return {.type = Type::text_map}; }
  static constexpr ValueRule resume() { return {.type = Type::resume}; }
  static constexpr ValueRule data_files() { return {.type = Type::data_files}; }
  static constexpr ValueRule param_groups() { return {.type = Type::param_groups}; }
  constexpr ValueRule or_null() const {
    auto rule = *this;
    rule.is_optional = true;
    return rule;
  }
};

/// The value with its type: whole numbers and bytes as integers, other numbers as they were written (1 stays an
/// integer), data_files as [{"path", "weight"}], param_groups with a list in "params". Throws Error "WHERE: KEY is
/// FOUND; expected ...".
Json read_value(const SourceNode& node, const ValueRule& rule, const std::string& key);

/// The value as it was written, where no rule says what it must be: a map as an object.
Json read_untyped(const SourceNode& node);

/// "a whole number from 1 to 8", "none, selective or full": for errors and docs.
std::string describe(const ValueRule& rule);

/// "a, b or c".
std::string join_choices(std::span<const std::string_view> names);

/// A number as short as it can be: "0.5", "3", "1e-08".
std::string number_text(double value);

}  // namespace heddle
