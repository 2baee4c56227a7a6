#pragma once

#include <deque>
#include <string>
#include <string_view>

#include "data/jinja/lexer.h"
#include "data/jinja/syntax.h"

namespace heddle::jinja {

/// The statements of a template, with Jinja's precedences and messages. Variables have no slots yet. Throws Error;
/// `place` then says where.
Body parse(std::string_view source, std::deque<std::string>& texts, Place& place);

}  // namespace heddle::jinja
