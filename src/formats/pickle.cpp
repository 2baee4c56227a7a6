#include "formats/pickle.h"

#include <limits>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "formats/json.h"

namespace heddle {
namespace {

constexpr std::size_t kMostObjects = 2'000'000;
constexpr int kHighestProtocol = 5;
constexpr int kMark = -1;

}  // namespace

/// Runs the opcodes of one pickle.
class PickleMachine {
 public:
  PickleMachine(Pickle& pickle, std::string_view text, const std::string& where,
                const std::function<bool(std::string_view)>& allows)
      : pickle_(pickle), text_(text), where_(where), allows_(allows) {}

  void run() {
    while (!step(byte())) {
    }
    if (stack_.size() != 1) damaged("its end leaves a stack");
    pickle_.root_ = pop();
    pickle_.size_ = at_;
  }

 private:
  using Kind = Pickle::Kind;
  using Object = Pickle::Object;

  [[noreturn]] void damaged(std::string_view what) const {
    fail("{}: is no pickle of tensors: {} at byte {}", where_, what, at_);
  }

  std::string_view take(std::uint64_t bytes) {
    if (bytes > text_.size() - at_) damaged("it ends early");
    const auto taken = text_.substr(at_, bytes);
    at_ += bytes;
    return taken;
  }
  std::uint8_t byte() { return static_cast<std::uint8_t>(take(1)[0]); }
  std::uint64_t number(std::size_t bytes) {
    std::uint64_t value = 0;
    const auto raw = take(bytes);
    for (std::size_t i = 0; i < bytes; ++i) value |= std::uint64_t{static_cast<std::uint8_t>(raw[i])} << (8 * i);
    return value;
  }
  std::string line() {
    const std::size_t end = text_.find('\n', at_);
    if (end == std::string_view::npos) damaged("a line without end");
    std::string taken(take(end - at_));
    ++at_;
    return taken;
  }

  int add(Object object) {
    if (pickle_.objects_.size() >= kMostObjects) damaged("more objects than any model needs");
    pickle_.objects_.push_back(std::move(object));
    return static_cast<int>(pickle_.objects_.size()) - 1;
  }
  void push(Object object) { stack_.push_back(add(std::move(object))); }
  void push_integer(std::int64_t value) { push({Kind::integer, value, {}, {}}); }
  void push_text(std::uint64_t bytes) { push({Kind::text, 0, std::string(take(bytes)), {}}); }

  int pop() {
    if (stack_.empty() || stack_.back() == kMark) damaged("an empty stack");
    const int top = stack_.back();
    stack_.pop_back();
    return top;
  }
  int top() const {
    if (stack_.empty() || stack_.back() == kMark) damaged("an empty stack");
    return stack_.back();
  }
  /// What was pushed since the last mark, which goes too.
  std::vector<int> pop_to_mark() {
    std::size_t begin = stack_.size();
    while (begin > 0 && stack_[begin - 1] != kMark) --begin;
    if (begin == 0) damaged("a mark is missing");
    std::vector<int> items(stack_.begin() + static_cast<std::ptrdiff_t>(begin), stack_.end());
    stack_.resize(begin - 1);
    return items;
  }
  void push_tuple(std::size_t count) {
    std::vector<int> items(count);
    for (std::size_t i = count; i > 0; --i) items[i - 1] = pop();
    push({Kind::tuple, 0, {}, std::move(items)});
  }

  Object& container(Kind kind) {
    Object& object = pickle_.objects_[static_cast<std::size_t>(top())];
    if (object.kind != kind) damaged("items for what cannot hold them");
    return object;
  }
  void append_to(Kind kind, const std::vector<int>& items) {
    if (kind == Kind::dict && items.size() % 2 != 0) damaged("a key without a value");
    auto& into = container(kind).items;
    into.insert(into.end(), items.begin(), items.end());
  }

  void push_global(std::string name) {
    if (!allows_(name))
      fail("{}: names {}, which no file of tensors needs; nothing of it is called", where_, text_excerpt(name));
    push({Kind::global, 0, std::move(name), {}});
  }
  void reduce() {
    const int arguments = pop(), function = pop();
    const Object& called = pickle_.at(function);
    if (called.kind != Kind::global || pickle_.at(arguments).kind != Kind::tuple) damaged("a call of no function");
    if (called.text == "collections OrderedDict") {
      if (!pickle_.at(arguments).items.empty()) damaged("an OrderedDict with arguments");
      push({Kind::dict, 0, {}, {}});
    } else {
      push({Kind::call, 0, {}, {function, arguments}});
    }
  }
  /// An object of a class, which is not made: its class and arguments stand for it.
  void make_object() {
    const int arguments = pop(), type = pop();
    if (pickle_.at(type).kind != Kind::global || pickle_.at(arguments).kind != Kind::tuple)
      damaged("an object of no class");
    push({Kind::record, 0, {}, {type, arguments}});
  }
  /// The state of what was called or made. That of a dict, such as a state_dict's _metadata, is nothing that tensors
  /// depend on.
  void build() {
    const int state = pop();
    Object& object = pickle_.objects_[static_cast<std::size_t>(top())];
    if (object.kind == Kind::dict) return;
    if ((object.kind != Kind::call && object.kind != Kind::record) || object.items.size() != 2)
      damaged("a state for what has none");
    object.items.push_back(state);
  }

  void memoize(std::uint64_t key) { memo_[key] = top(); }
  void recall(std::uint64_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) damaged("an object that was not kept");
    stack_.push_back(found->second);
  }

  std::int64_t long_integer(std::uint64_t bytes) {
    if (bytes > 8) {
      take(bytes);  // PyTorch's magic number; no extent or offset is as large
      return std::numeric_limits<std::int64_t>::max();
    }
    std::uint64_t value = number(bytes);
    if (bytes > 0 && bytes < 8 && (value >> (8 * bytes - 1)) != 0) value |= ~std::uint64_t{0} << (8 * bytes);
    return static_cast<std::int64_t>(value);
  }

  bool push_constant(std::uint8_t opcode) {
    switch (opcode) {
      case 'N': push({}); return true;
      case 0x88: push({Kind::boolean, 1, {}, {}}); return true;
      case 0x89: push({Kind::boolean, 0, {}, {}}); return true;
      case 'J': push_integer(static_cast<std::int32_t>(number(4))); return true;
      case 'K': push_integer(static_cast<std::int64_t>(number(1))); return true;
      case 'M': push_integer(static_cast<std::int64_t>(number(2))); return true;
      case 0x8a: push_integer(long_integer(number(1))); return true;
      case 0x8b: push_integer(long_integer(number(4))); return true;
      case 'G': push({Kind::real, 0, std::string(take(8)), {}}); return true;
      case 'X':
      case 'T':
      case 'B': push_text(number(4)); return true;
      case 0x8c:
      case 'U':
      case 'C': push_text(number(1)); return true;
      case 0x8d:
      case 0x8e: push_text(number(8)); return true;
      default: return false;
    }
  }

  bool build_container(std::uint8_t opcode) {
    switch (opcode) {
      case '(': stack_.push_back(kMark); return true;
      case ')': push_tuple(0); return true;
      case 't': push({Kind::tuple, 0, {}, pop_to_mark()}); return true;
      case 0x85: push_tuple(1); return true;
      case 0x86: push_tuple(2); return true;
      case 0x87: push_tuple(3); return true;
      case ']': push({Kind::list, 0, {}, {}}); return true;
      case '}': push({Kind::dict, 0, {}, {}}); return true;
      case 'a': append_to(Kind::list, {pop()}); return true;
      case 'e': append_to(Kind::list, pop_to_mark()); return true;
      case 'u': append_to(Kind::dict, pop_to_mark()); return true;
      case 's': {
        const int value = pop(), key = pop();
        append_to(Kind::dict, {key, value});
        return true;
      }
      case '0': pop(); return true;
      case '1': pop_to_mark(); return true;
      default: return false;
    }
  }

  bool use_memo(std::uint8_t opcode) {
    switch (opcode) {
      case 'q': memoize(number(1)); return true;
      case 'r': memoize(number(4)); return true;
      case 0x94: memoize(memo_.size()); return true;
      case 'h': recall(number(1)); return true;
      case 'j': recall(number(4)); return true;
      default: return false;
    }
  }

  /// True at the end of the pickle.
  bool step(std::uint8_t opcode) {
    if (push_constant(opcode) || build_container(opcode) || use_memo(opcode)) return false;
    switch (opcode) {
      case '.': return true;
      case 0x80:
        if (number(1) > kHighestProtocol) damaged("an unknown protocol");
        return false;
      case 0x95: number(8); return false;  // the length of a frame
      case 'c': {
        const std::string module = line();
        push_global(module + " " + line());
        return false;
      }
      case 0x93: {
        const int name = pop(), module = pop();
        if (pickle_.at(name).kind != Kind::text || pickle_.at(module).kind != Kind::text)
          damaged("a name that is no text");
        push_global(pickle_.at(module).text + " " + pickle_.at(name).text);
        return false;
      }
      case 'R': reduce(); return false;
      case 0x81: make_object(); return false;
      case 'b': build(); return false;
      case 'Q': push({Kind::persistent, 0, {}, {pop()}}); return false;
      default: damaged(fmt::format("opcode 0x{:02x}, which files of tensors do not need,", opcode));
    }
  }

  Pickle& pickle_;
  std::string_view text_;
  const std::string& where_;
  const std::function<bool(std::string_view)>& allows_;
  std::size_t at_ = 0;
  std::vector<int> stack_;  // indices of objects, or kMark
  std::unordered_map<std::uint64_t, int> memo_;
};

const Pickle::Object* Pickle::find(const Object& dictionary, std::string_view key) const {
  if (dictionary.kind != Kind::dict) return nullptr;
  for (std::size_t i = dictionary.items.size(); i >= 2; i -= 2) {
    const Object& found = at(dictionary.items[i - 2]);
    if (found.kind == Kind::text && found.text == key) return &at(dictionary.items[i - 1]);
  }
  return nullptr;
}

Pickle::Pickle(std::string_view text, const std::string& where, const std::function<bool(std::string_view)>& allows) {
  PickleMachine(*this, text, where, allows).run();
}

}  // namespace heddle
