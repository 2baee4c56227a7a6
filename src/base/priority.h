#pragma once

namespace heddle {

/// For work in the background: this thread, and those that it will start, get a quarter of a core that a thread of
/// ordinary priority wants too, and all of one that nobody wants. For good: a thread may not raise itself again.
void lower_priority();

}  // namespace heddle
