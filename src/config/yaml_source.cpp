#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <sstream>

#include "base/error.h"
#include "config/source_node.h"

namespace heddle {
namespace {

// Aliases of aliases grow exponentially ("billion laughs"); a run file has some hundred values.
constexpr std::size_t kMaxNodes = 100'000;

std::size_t count_nodes(const SourceNode& node) {
  std::size_t count = 1;
  for (const auto& item : node.items) count += count_nodes(item);
  for (const auto& [name, entry] : node.entries) count += count_nodes(entry);
  return count;
}

/// Builds the tree from the parser's events; yaml-cpp's own nodes forget duplicates and, in part, lines.
class TreeBuilder final : public YAML::EventHandler {
 public:
  explicit TreeBuilder(std::string name) : name_(std::move(name)) {}

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    auto node = scalar(mark, "");
    // The mark of a value that is not there is that of what follows, which may lie many lines below.
    if (!open_.empty() && open_.back().has_key) node.where = open_.back().key_where;
    add(std::move(node), anchor);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    auto node = scalar(mark, value);
    if (tag != "?") {  // quoted or tagged
      if (tag != "!" && tag != "tag:yaml.org,2002:str") fail("{}: the tag {} is not known here", node.where, tag);
      node.kind = SourceNode::Kind::text;
      node.text = value;
    }
    add(std::move(node), anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) fail("{}: an alias to a value that is not complete here", where(mark));
    auto node = found->second;
    nodes_ += count_nodes(node);
    add(std::move(node), 0);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(SourceNode::Kind::list, mark, anchor);
  }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(SourceNode::Kind::map, mark, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapEnd() override {
    merge(open_.back());
    close();
  }

  SourceNode take() { return std::move(root_); }

 private:
  struct Open {
    SourceNode node;
    YAML::anchor_t anchor = 0;
    bool has_key = false;  // map: the next value belongs to `key`
    std::string key, key_where;
    std::vector<SourceNode> merged;  // values of << in this map
  };

  std::string where(const YAML::Mark& mark) const { return name_ + ":" + std::to_string(mark.line + 1); }

  SourceNode scalar(const YAML::Mark& mark, const std::string& value) {
    SourceNode node;
    node.where = where(mark);
    node.kind = plain_scalar_kind(value);
    node.text = value;
    return node;
  }

  void open(SourceNode::Kind kind, const YAML::Mark& mark, YAML::anchor_t anchor) {
    Open next;
    next.node.kind = kind;
    next.node.where = where(mark);
    next.anchor = anchor;
    open_.push_back(std::move(next));
  }

  void close() {
    auto node = std::move(open_.back().node);
    const auto anchor = open_.back().anchor;
    open_.pop_back();
    add(std::move(node), anchor);
  }

  void add(SourceNode node, YAML::anchor_t anchor) {
    if (++nodes_ > kMaxNodes) fail("{}: more than {} values", node.where, kMaxNodes);
    if (anchor != 0) anchors_[anchor] = node;
    if (open_.empty()) {
      root_ = std::move(node);
    } else if (auto& parent = open_.back(); parent.node.kind == SourceNode::Kind::list) {
      parent.node.items.push_back(std::move(node));
    } else if (!parent.has_key) {
      take_key(parent, node);
    } else {
      parent.has_key = false;
      if (parent.key == "<<") {
        parent.merged.push_back(std::move(node));
      } else {
        parent.node.add(parent.key, std::move(node));
      }
    }
  }

  /// The dotted path of `name` in the innermost map.
  std::string path(const std::string& name) const {
    std::string result;
    for (std::size_t i = 0; i + 1 < open_.size(); ++i) {
      if (open_[i].node.kind == SourceNode::Kind::map) result += open_[i].key + ".";
    }
    return result + name;
  }

  void take_key(Open& map, const SourceNode& node) const {
    if (node.kind == SourceNode::Kind::list || node.kind == SourceNode::Kind::map || node.text.empty()) {
      fail("{}: a key is {}; expected a name", node.where, describe(node));
    }
    if (map.node.find(node.text) != nullptr) {
      throw DuplicateKeyError(fmt::format("{}: {} is given twice, first at {}", node.where, path(node.text),
                                          map.node.find(node.text)->where));
    }
    map.key = node.text;
    map.key_where = node.where;
    map.has_key = true;
  }

  /// `<<: *base` adds base's entries except those the map has itself; of several, the first counts (YAML 1.1 merge).
  static void merge(Open& map) {
    for (auto& source : map.merged) {
      std::vector<SourceNode> maps;
      if (source.kind == SourceNode::Kind::list) {
        maps = std::move(source.items);
      } else {
        maps.push_back(std::move(source));
      }
      for (auto& from : maps) {
        if (from.kind != SourceNode::Kind::map) fail("{}: << is {}; expected a map", from.where, describe(from));
        for (auto& [name, entry] : from.entries) {
          if (map.node.find(name) == nullptr) map.node.add(name, std::move(entry));
        }
      }
    }
    map.merged.clear();
  }

  std::string name_;
  SourceNode root_;
  std::vector<Open> open_;
  std::map<YAML::anchor_t, SourceNode> anchors_;
  std::size_t nodes_ = 0;
};

/// Line of the first byte that does not belong to UTF-8 text (or is a control character), or 0.
std::size_t first_bad_line(std::string_view text) {
  std::size_t line = 1;
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    if (lead == '\n') ++line;
    if (lead < 0x80) {
      if (lead < 0x20 && lead != '\n' && lead != '\r' && lead != '\t') return line;
      ++i;
      continue;
    }
    const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || i + length > text.size()) return line;
    std::uint32_t code = lead & (0xffu >> (length + 1));
    for (std::size_t k = 1; k < length; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xc0u) != 0x80u) return line;
      code = code << 6 | (next & 0x3fu);
    }
    const bool overlong = code < (length == 2 ? 0x80u : length == 3 ? 0x800u : 0x10000u);
    if (overlong || code > 0x10ffffu || (code >= 0xd800u && code < 0xe000u)) return line;
    i += length;
  }
  return 0;
}

/// What YAML's errors do not say: whether a tab indents the line (from 0).
bool is_indented_by_tab(std::string_view text, int line) {
  for (; line > 0; --line) text.remove_prefix(std::min(text.size(), text.find('\n') + 1));
  const auto first = text.find_first_not_of(' ');
  return first != std::string_view::npos && text[first] == '\t';
}

}  // namespace

SourceNode parse_yaml(std::string_view text, const std::string& name) {
  if (const auto line = first_bad_line(text); line != 0) fail("{}:{}: is not UTF-8 text", name, line);
  TreeBuilder builder(name);
  std::istringstream stream{std::string(text)};
  try {
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) fail("{}: is empty; expected keys and values", name);
    TreeBuilder second(name);
    if (parser.HandleNextDocument(second)) fail("{}: holds more than one YAML document", name);
  } catch (const YAML::Exception& e) {
    const auto line = e.mark.is_null() ? std::string() : ":" + std::to_string(e.mark.line + 1);
    const bool has_tab = !e.mark.is_null() && is_indented_by_tab(text, e.mark.line);
    fail("{}{}: is neither YAML nor JSON: {}{}", name, line, e.msg,
         has_tab ? "; a tab indents the line, expected spaces" : "");
  }
  auto root = builder.take();
  if (root.kind == SourceNode::Kind::null) fail("{}: is empty; expected keys and values", name);
  if (root.kind != SourceNode::Kind::map) fail("{}: is {}; expected a map of keys to values", name, describe(root));
  return root;
}

}  // namespace heddle
