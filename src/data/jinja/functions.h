#pragma once

#include <string_view>

#include "data/jinja/arguments.h"
#include "data/jinja/builtins.h"
#include "data/jinja/runtime.h"
#include "data/jinja/value.h"

namespace heddle::jinja {

/// "abc".upper, before it is called.
class BoundMethod final : public Object {
 public:
  BoundMethod(const Method* method, const Value& self) : method_(method), self_(self) {}
  std::string_view type_name() const override { return "builtin_function_or_method"; }
  bool is_callable() const override { return true; }
  Value call(Runtime& runtime, Arguments& arguments) override { return method_->function(runtime, self_, arguments); }

 private:
  const Method* method_;
  Value self_;
};

/// A function of the environment: range, raise_exception, ...
class Function final : public Object {
 public:
  using Body = Value (*)(Runtime&, Arguments&);
  Function(std::string_view name, Body body) : name_(name), body_(body) {}
  std::string_view type_name() const override { return "function"; }
  bool is_callable() const override { return true; }
  Value call(Runtime& runtime, Arguments& arguments) override { return body_(runtime, arguments); }
  void append_repr(std::string& out, int) const override { out.append("<function ").append(name_).append(">"); }

 private:
  std::string_view name_;
  Body body_;
};

struct Member {
  std::string_view name;
  Value value;
  Member* next;
};

/// namespace(): the one thing a template can change.
class Namespace final : public Object {
 public:
  std::string_view type_name() const override { return "transformers.utils.chat_template_utils.TemplateNamespace"; }
  bool attribute(Runtime& runtime, std::string_view name, Value& value) override;
  void append_repr(std::string& out, int depth) const override;
  void set(Runtime& runtime, std::string_view name, const Value& value);

 private:
  Member* find(std::string_view name) const;
  Member *first_ = nullptr, *last_ = nullptr;  // in the order they were set first
};

Namespace* as_namespace(const Value& value);

/// Calls what a template calls.
Value call_value(Runtime& runtime, const Value& callee, Arguments& arguments);

}  // namespace heddle::jinja
