#pragma once

#include <cstdint>

#include "data/jinja/lexer.h"
#include "data/jinja/syntax.h"

namespace heddle::jinja {

struct ResolvedTemplate {
  Body body;
  Scope scope;  // of the outermost variables
  std::uint16_t frame_size = 0;
  bool marks_generation = false;
};

/// Gives each variable its slot by Jinja's rules: which scope a name belongs to is settled before rendering, from where
/// it is read and set first. Throws Error for what Jinja's compiler refuses; `place` then says where.
ResolvedTemplate resolve(Body body, Place& place);

}  // namespace heddle::jinja
