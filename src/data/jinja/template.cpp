#include "data/jinja/template.h"

#include <algorithm>

#include "base/error.h"
#include "data/jinja/interpreter.h"
#include "data/jinja/parser.h"
#include "data/tokenizer/unicode.h"

namespace heddle::jinja {

Value from_json(Runtime& runtime, const Json& json, int depth) {
  check_nesting(depth);
  switch (json.type()) {
    case Json::value_t::boolean: return Value(json.get<bool>());
    case Json::value_t::number_integer: return Value(json.get<std::int64_t>());
    case Json::value_t::number_unsigned:
      if (json.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) {
        fail("the number {} is beyond 64 bits", json_excerpt(json));
      }
      return Value(json.get<std::int64_t>());
    case Json::value_t::number_float: return Value(json.get<double>());
    case Json::value_t::string: return Value(std::string_view(json.get_ref<const std::string&>()));
    case Json::value_t::array: {
      if (json.empty()) return Value::list({});
      auto* items = static_cast<Value*>(runtime.arena.allocate(json.size() * sizeof(Value)));
      std::size_t count = 0;
      for (const Json& item : json) new (items + count++) Value(from_json(runtime, item, depth + 1));
      return Value::list({items, count});
    }
    case Json::value_t::object: {
      auto* entries = static_cast<Entry*>(runtime.arena.allocate(json.size() * sizeof(Entry)));
      std::size_t count = 0;
      for (const auto& [key, value] : json.get_ref<const Json::object_t&>()) {
        new (entries + count++) Entry{Value(std::string_view(key)), from_json(runtime, value, depth + 1)};
      }
      return Value(runtime.arena.make<Dict>(std::span<const Entry>(entries, count)));
    }
    case Json::value_t::null:
    case Json::value_t::binary:
    case Json::value_t::discarded: break;
  }
  return {};
}

Template::Template(std::string_view source, std::string name) : name_(std::move(name)) {
  Place place;
  try {
    if (const std::size_t at = unicode::find_invalid(source); at != std::string_view::npos) {
      place.line =
          1 + static_cast<int>(std::count(source.begin(), source.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
      fail("the template is not UTF-8");
    }
    source_ = normalize_lines(source);
    resolved_ = resolve(parse(source_, texts_, place), place);
  } catch (const Error& error) {
    fail("{}:{}: {}", name_, place.line, error.what());
  }
}

Rendering Template::render(std::span<const Passed> variables, const Limits& limits) const {
  Runtime runtime(limits);
  runtime.output.reserve(2048);  // spares most conversations the growing
  try {
    std::vector<Entry> context;
    for (const auto& [name, json] : variables) {
      const auto known =
          std::find_if(context.begin(), context.end(), [n = name](const Entry& e) { return e.key.text() == n; });
      const Value value = from_json(runtime, *json);
      known != context.end() ? void(known->value = value) : context.push_back({Value(name), value});
    }
    const Dict dict{context};
    Interpreter(runtime, resolved_, dict).run();
  } catch (const Error& error) {
    fail("{}:{}: {}", name_, std::max(runtime.line, 1), error.what());
  }
  return {std::move(runtime.output), std::move(runtime.generated)};
}

}  // namespace heddle::jinja
