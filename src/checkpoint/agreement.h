#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"

/// What ranks that write or read one folder together need to say to each other.
namespace heddle {

/// Runs `body` on every rank and waits for all. If it throws on any rank, all ranks get the text of the first of them;
/// none: all ranks are well. `body` calls no collective, so that a rank that fails does not leave others waiting
/// inside.
std::optional<std::string> first_failure(Communicator& communicator, const std::function<void()>& body);

/// The same; throws Error with that text on all ranks, so that nobody goes on alone.
void agree(Communicator& communicator, const std::function<void()>& body);

/// The text of the root, on all ranks.
std::string broadcast_text(Communicator& communicator, std::string text, int root = 0);
std::int64_t broadcast_number(Communicator& communicator, std::int64_t number, int root = 0);

/// The texts of all ranks on rank 0, in their order; on other ranks nothing.
std::vector<std::string> gather_texts(Communicator& communicator, const std::string& text);

}  // namespace heddle
