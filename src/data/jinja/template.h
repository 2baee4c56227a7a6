#pragma once

#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/jinja/runtime.h"
#include "data/jinja/scopes.h"
#include "formats/json.h"

namespace heddle::jinja {

struct Rendering {
  std::string text;
  std::vector<std::pair<std::size_t, std::size_t>> generated;  // bytes that {% generation %} blocks wrote
};

/// A variable that a rendering is given; the value must outlive it.
struct Passed {
  std::string_view name;
  const Json* value;
};

/// A parsed template, in the environment that transformers gives chat templates.
class Template {
 public:
  /// `name` is what errors call it. Throws Error "NAME:LINE: ...".
  Template(std::string_view source, std::string name);
  Template(const Template&) = delete;
  Template& operator=(const Template&) = delete;

  /// Of variables of one name the last counts. Throws Error "NAME:LINE: ...". Const, and safe on many threads.
  Rendering render(std::span<const Passed> variables, const Limits& limits = {}) const;
  bool marks_generation() const { return resolved_.marks_generation; }

 private:
  std::string name_, source_;
  std::deque<std::string> texts_;
  ResolvedTemplate resolved_;
};

/// A JSON value as a template sees it; texts stay where they are.
Value from_json(Runtime& runtime, const Json& json, int depth = 0);

}  // namespace heddle::jinja
