#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "formats/json.h"

namespace heddle {

/// A name given twice in one map.
class DuplicateKeyError : public Error {
 public:
  using Error::Error;
};

struct SourceEntry;

/// A value as it was written, and where, before any key gives it a type: what YAML, JSON and the command line are read
/// into.
struct SourceNode {
  enum class Kind { null, boolean, number, text, list, map };
  Kind kind = Kind::null;
  std::string text;                  // boolean, number, text: as written
  std::string where;                 // "run.yaml:14", "command line"
  bool is_untyped = false;           // from the command line: the key's type decides what it is
  std::vector<SourceNode> items;     // list
  std::vector<SourceEntry> entries;  // map; each name once, in the order written

  SourceNode* find(std::string_view name);
  const SourceNode* find(std::string_view name) const;
  SourceNode& add(std::string name, SourceNode node);
};

struct SourceEntry {
  std::string name;
  SourceNode node;
};

/// Sets `path` (a.b.c) below `node`, making the maps on the way; what was there is replaced.
void set_path(SourceNode& node, std::string_view path, SourceNode value);

/// An unquoted YAML scalar: null (empty, ~, null), true, false, a number, else text. Numbers are JSON's and those that
/// YAML 1.2 adds (+1, .5, 5.), also 1e-3, which YAML 1.1 takes for text. Not numbers: 010, 0x10, 1_000, .inf, .nan.
SourceNode::Kind plain_scalar_kind(std::string_view text);

/// One YAML document that is a map (JSON is read as YAML). Anchors, aliases and merge keys (<<) are resolved. Throws
/// Error "NAME:LINE: ..." for a syntax error, a name given twice, more than one document, text that is not UTF-8.
SourceNode parse_yaml(std::string_view text, const std::string& name);

/// A DeepSpeed JSON (`is_strict`: JSON only), or a run file: YAML, or JSON in full (yaml-cpp does not know all of it).
SourceNode parse_source(std::string_view text, const std::string& name, bool is_strict);

/// A value given on the command line, as VALUE of `--KEY VALUE`: YAML's flow form if it starts with { or [, else a
/// plain scalar.
SourceNode parse_command_line_value(std::string_view text);

SourceNode node_from_json(const Json& value, const std::string& where);

/// "a list", "\"fast\"", "7": what an error says was found.
std::string describe(const SourceNode& node);

}  // namespace heddle
