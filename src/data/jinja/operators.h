#pragma once

#include <string>
#include <string_view>

#include "data/jinja/runtime.h"
#include "data/jinja/syntax.h"
#include "data/jinja/value.h"

namespace heddle::jinja {

class Arguments;

/// Python's + - * / // % **. Whole numbers have 64 bits; beyond them is an error.
Value operate(Runtime& runtime, BinaryOp op, const Value& left, const Value& right);
Value negate(const Value& value);
Value make_positive(const Value& value);
bool compare(Runtime& runtime, Comparison comparison, const Value& left, const Value& right);

/// text % values
Value format_percent(Runtime& runtime, const Value& format, const Value& values);
/// text.format(...)
Value format_braces(Runtime& runtime, const Value& format, const Arguments& arguments);
/// format(value, spec)
void append_formatted(Runtime& runtime, std::string& out, const Value& value, std::string_view spec);

/// markupsafe.escape: a Markup; one that is Markup already stays as it is.
Value escape(Runtime& runtime, const Value& value);

}  // namespace heddle::jinja
