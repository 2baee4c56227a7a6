#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "data/jinja/arena.h"
#include "data/jinja/value.h"

namespace heddle::jinja {

/// What one rendering may take, so that no template can hang or fill the machine.
struct Limits {
  std::int64_t steps = 50'000'000;              // a step: an expression, a loop's turn, some bytes of text
  std::size_t memory = std::size_t{512} << 20;  // bytes for values
  std::size_t output = std::size_t{128} << 20;  // bytes of text
  int depth = 2000;                             // nested expressions, statements and calls
};

/// The state of one rendering that values, filters and functions share.
class Runtime {
 public:
  explicit Runtime(const Limits& limits) : arena(limits.memory), limits_(limits), steps_left_(limits.steps) {}

  void spend(std::int64_t steps) {
    steps_left_ -= steps;
    if (steps_left_ < 0) fail("the template takes more than {} steps", limits_.steps);
  }
  /// For work that goes through that many bytes.
  void spend_bytes(std::size_t bytes) { spend(1 + static_cast<std::int64_t>(bytes / 32)); }

  /// Counts nested calls for its lifetime.
  class Depth {
   public:
    explicit Depth(Runtime& runtime) : runtime_(runtime) {
      if (++runtime_.depth_ > runtime_.limits_.depth) {
        --runtime_.depth_;
        fail("the template nests more than {} expressions and calls", runtime_.limits_.depth);
      }
    }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;
    ~Depth() { --runtime_.depth_; }

   private:
    Runtime& runtime_;
  };

  /// Before a container that is being built grows: it will be copied to the arena.
  void check_elements(std::size_t count) const {
    if (count > limits_.memory / sizeof(Value)) fail("a list or dict has more than {} elements", count);
  }
  void check_output() const {
    if (output.size() > limits_.output) fail("the text is longer than {} bytes", limits_.output);
  }

  Value text(std::string_view bytes, bool is_markup = false) { return Value(arena.copy(bytes), is_markup); }
  Value list(std::span<const Value> items) { return Value::list(arena.copy(items)); }
  Value tuple(std::span<const Value> items) { return Value::tuple(arena.copy(items)); }
  Value dict(std::span<const Entry> entries) {
    return Value(arena.make<Dict>(std::span<const Entry>(arena.copy(entries))));
  }
  Value undefined_variable(std::string_view name) {
    return Value(arena.make<Undefined>(std::string_view(), Value(name), Value::missing()));
  }
  Value undefined_member(const Value& owner, const Value& name) {
    return Value(arena.make<Undefined>(std::string_view(), name, owner));
  }
  Value undefined(std::string_view hint) {
    return Value(arena.make<Undefined>(arena.copy(hint), Value(), Value::missing()));
  }

  Arena arena;
  std::string output;
  std::vector<std::pair<std::size_t, std::size_t>> generated;
  int line = 0;  // of the template, where it stands now

 private:
  Limits limits_;
  std::int64_t steps_left_;
  int depth_ = 0;
};

}  // namespace heddle::jinja
